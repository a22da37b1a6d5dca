// The malloc family and the operators of the tested heap, by pointer: in a fuzzer the names belong
// to the system's heap. The calls of loam.h and stats.h have names of their own.
#ifndef LOAM_TESTS_FUZZ_HEAP_CALLS_H
#define LOAM_TESTS_FUZZ_HEAP_CALLS_H

#include <malloc.h>
#include <stddef.h>
#include <stdio.h>

#include <new>

#include "system.h"

namespace fuzz {

struct HeapCalls {
  void* (*malloc)(size_t);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void* (*reallocarray)(void*, size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  void* (*memalign)(size_t, size_t);
  void* (*valloc)(size_t);
  void* (*pvalloc)(size_t);
  void (*free)(void*);
  void (*cfree)(void*);
  void (*free_sized)(void*, size_t);
  void (*free_aligned_sized)(void*, size_t, size_t);
  size_t (*usable_size)(void*);
  int (*trim)(size_t);
  struct mallinfo2 (*info2)();
  struct mallinfo (*info)();
  int (*info_xml)(int, FILE*);
  int (*option)(int, int);
  void* (*new_plain)(size_t);
  void* (*new_array)(size_t);
  void* (*new_nothrow)(size_t, const std::nothrow_t&) noexcept;
  void* (*new_array_nothrow)(size_t, const std::nothrow_t&) noexcept;
  void* (*new_aligned)(size_t, std::align_val_t);
  void* (*new_array_aligned)(size_t, std::align_val_t);
  void (*delete_plain)(void*) noexcept;
  void (*delete_array)(void*) noexcept;
  void (*delete_nothrow)(void*, const std::nothrow_t&) noexcept;
  void (*delete_sized)(void*, size_t) noexcept;
  void (*delete_array_sized)(void*, size_t) noexcept;
  void (*delete_aligned)(void*, std::align_val_t) noexcept;
  void (*delete_array_aligned)(void*, std::align_val_t) noexcept;
  void (*delete_sized_aligned)(void*, size_t, std::align_val_t) noexcept;
  /// Null when the heap is the shipped library on the real system.
  const System* system;
};

}  // namespace fuzz

extern "C" const fuzz::HeapCalls* fuzz_heap_calls();

#endif
