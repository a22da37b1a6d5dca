// This file is compiled into the fuzzed library, where the linker keeps the names inside
// (heap_calls.map). It is compiled once more for a replay on the shipped library, whose names serve
// the whole process.
#include "heap_calls.h"

#include <stdlib.h>

extern "C" {
void cfree(void* block);
void free_sized(void* block, size_t size);
void free_aligned_sized(void* block, size_t alignment, size_t size);
}

#if defined(FUZZ_SYSTEM)
namespace fuzz {
extern const System deterministic_system;
}
#endif

extern "C" __attribute__((visibility("default"))) const fuzz::HeapCalls* fuzz_heap_calls() {
  using std::align_val_t;
  using std::nothrow_t;
  static const fuzz::HeapCalls calls = {
    &::malloc,
    &::calloc,
    &::realloc,
    &::reallocarray,
    &::posix_memalign,
    &::aligned_alloc,
    &::memalign,
    &::valloc,
    &::pvalloc,
    &::free,
    &::cfree,
    &::free_sized,
    &::free_aligned_sized,
    &::malloc_usable_size,
    &::malloc_trim,
    &::mallinfo2,
    &::mallinfo,
    &::malloc_info,
    &::mallopt,
    static_cast<void* (*)(size_t)>(&::operator new),
    static_cast<void* (*)(size_t)>(&::operator new[]),
    static_cast<void* (*)(size_t, const nothrow_t&) noexcept>(&::operator new),
    static_cast<void* (*)(size_t, const nothrow_t&) noexcept>(&::operator new[]),
    static_cast<void* (*)(size_t, align_val_t)>(&::operator new),
    static_cast<void* (*)(size_t, align_val_t)>(&::operator new[]),
    static_cast<void (*)(void*) noexcept>(&::operator delete),
    static_cast<void (*)(void*) noexcept>(&::operator delete[]),
    static_cast<void (*)(void*, const nothrow_t&) noexcept>(&::operator delete),
    static_cast<void (*)(void*, size_t) noexcept>(&::operator delete),
    static_cast<void (*)(void*, size_t) noexcept>(&::operator delete[]),
    static_cast<void (*)(void*, align_val_t) noexcept>(&::operator delete),
    static_cast<void (*)(void*, align_val_t) noexcept>(&::operator delete[]),
    static_cast<void (*)(void*, size_t, align_val_t) noexcept>(&::operator delete),
#if defined(FUZZ_SYSTEM)
    &fuzz::deterministic_system,
#else
    nullptr,
#endif
  };
  return &calls;
}
