// The part of the C functions that every system shares: errno, calloc() and realloc().
#pragma once

#include <cstddef>

#include "heap/heap.h"
#include "os/os.h"

namespace loam::c_family {

/// Sets errno. Always null.
LOAM_COLD inline void* out_of_memory() {
  os::set_errno_out_of_memory();
  return nullptr;
}

[[nodiscard]] LOAM_INLINE void* or_out_of_memory(void* block) {
  return LOAM_LIKELY(block != nullptr) ? block : out_of_memory();
}

[[nodiscard]] LOAM_INLINE void* allocate_zeroed(size_t count, size_t bytes) {
  size_t total;
  if (LOAM_UNLIKELY(__builtin_mul_overflow(count, bytes, &total))) return out_of_memory();
  return or_out_of_memory(heap::allocate_zeroed(total));
}

/// realloc(block, 0) frees the block and returns null.
[[nodiscard]] LOAM_INLINE void* reallocate(void* block, size_t bytes) {
  if (block == nullptr) return heap::allocate(bytes);
  if (LOAM_UNLIKELY(bytes == 0)) {
    heap::free(block);
    return nullptr;
  }
  return or_out_of_memory(heap::reallocate(block, bytes));
}

}  // namespace loam::c_family
