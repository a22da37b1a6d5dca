// Shared by the files with forms of operator new and delete.
#pragma once

#include <cstddef>
#include <new>

#include "base/units.h"
#include "heap/heap.h"

/// Weak, for a program that has the form itself and is linked with libloam.a.
#define LOAM_REPLACEABLE LOAM_EXPORT __attribute__((weak))

namespace loam::operators {

/// Finds out, before a second thread runs, which forms the program has replaced. Later, a thread
/// could wait in dlsym() for a dlopen() that waits for the thread.
void start();

/// The slow part of serves_itself(). An ordinary program takes it at a thread's first derived form;
/// a program with forms of its own takes it at every one.
[[nodiscard]] LOAM_NOINLINE bool attach_thread();

/// True if a form that the standard defines by another form may serve the heap itself.
LOAM_INLINE bool serves_itself() {
  return LOAM_LIKELY(operators_cache != &unused_cache) || attach_thread();
}

[[nodiscard]] LOAM_INLINE void* try_aligned(size_t bytes, std::align_val_t alignment) {
  const size_t value = static_cast<size_t>(alignment);
  if (!is_power_of_two(value) || bytes > kLargestRequest - value) return nullptr;
  return heap::allocate_aligned(value, bytes);
}

}  // namespace loam::operators
