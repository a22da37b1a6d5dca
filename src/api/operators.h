// What the files with forms of operator new and delete share.
#pragma once

#include <cstddef>
#include <new>

#include "base/units.h"
#include "heap/heap.h"

/// Weak, for a program that has the form itself and is linked with libloam.a.
#define LOAM_REPLACEABLE LOAM_EXPORT __attribute__((weak))

namespace loam::operators {

/// Finds out, while no other thread runs, which forms the program has itself: later, a thread could
/// wait in dlsym() for a dlopen() that waits for the thread.
void start();

/// Behind serves_itself(): a thread's first derived form in an ordinary program; every one in a
/// program with forms of its own.
[[nodiscard]] LOAM_NOINLINE bool attach_thread();

/// Whether a form that the standard defines by another one may serve the heap itself.
LOAM_INLINE bool serves_itself() {
  return LOAM_LIKELY(operators_cache != &unused_cache) || attach_thread();
}

[[nodiscard]] LOAM_INLINE void* try_aligned(size_t bytes, std::align_val_t alignment) {
  const size_t value = static_cast<size_t>(alignment);
  if (!is_power_of_two(value) || bytes > kLargestRequest - value) return nullptr;
  return heap::allocate_aligned(value, bytes);
}

}  // namespace loam::operators
