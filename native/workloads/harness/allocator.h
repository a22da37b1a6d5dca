// Functions of the heap under test beyond malloc and free, found at run time by name. The
// experiments link against no allocator, and one binary serves them all.
//
// Aligned blocks have a pair of calls here, since Windows frees them by a call of their own.
//
// Each allocator has its own call to give memory back. The C library's malloc_trim does nothing for
// a heap that replaced malloc but not malloc_trim, so it is the last choice.
#pragma once

#include <dlfcn.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace lab {

template <typename Function>
Function find_function(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// A block at a multiple of `alignment`, as a program asks its system for one; null: no memory.
inline void* allocate_aligned(size_t alignment, size_t bytes) {
#if defined(_WIN32)
  return _aligned_malloc(bytes, alignment);
#else
  void* p = nullptr;
  return posix_memalign(&p, alignment, bytes) == 0 ? p : nullptr;
#endif
}
inline void free_aligned(void* block) {
#if defined(_WIN32)
  _aligned_free(block);
#else
  std::free(block);
#endif
}

class Trim {
 public:
  // Look-ups may allocate inside the loader, so construct this before the measured part.
  Trim()
      : mimalloc_(find_function<void (*)(bool)>("mi_collect")),
        jemalloc_(find_function<Mallctl>("mallctl")),
        gperftools_(find_function<void (*)()>("MallocExtension_ReleaseFreeMemory")),
        tbb_(find_function<int (*)(int, void*)>("scalable_allocation_command")),
        libc_(find_function<int (*)(size_t)>("malloc_trim")) {}

  const char* name() const {
    return mimalloc_     ? "mi_collect"
           : jemalloc_   ? "mallctl arena.purge"
           : gperftools_ ? "MallocExtension_ReleaseFreeMemory"
           : tbb_        ? "scalable_allocation_command"
           : libc_       ? "malloc_trim"
                         : "none";
  }

  void operator()() const {
    if (mimalloc_) {
      mimalloc_(true);
    } else if (jemalloc_) {
      jemalloc_("thread.tcache.flush", nullptr, nullptr, nullptr, 0);
      jemalloc_("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096: MALLCTL_ARENAS_ALL
    } else if (gperftools_) {
      gperftools_();
    } else if (tbb_) {
      tbb_(0, nullptr);  // 0: TBBMALLOC_CLEAN_ALL_BUFFERS
    } else if (libc_) {
      libc_(0);
    }
  }

 private:
  using Mallctl = int (*)(const char*, void*, size_t*, void*, size_t);
  void (*mimalloc_)(bool);
  Mallctl jemalloc_;
  void (*gperftools_)();
  int (*tbb_)(int, void*);
  int (*libc_)(size_t);
};

}  // namespace lab
