// The default heap, which is behind malloc(), with the calls of a private heap. <loam/loam.h> says
// where it differs: its lock excludes only other threads that lock it, and a walk shows slots in
// caches as live.
#pragma once

#include <loam/loam.h>

#include "base/config.h"

namespace loam::default_heap {

[[nodiscard]] void* allocate(size_t bytes, size_t alignment, bool zero, loam_status* why);
[[nodiscard]] loam_status free(void* block);
[[nodiscard]] void* reallocate(void* block, size_t bytes, size_t alignment, bool zero,
                               loam_status* why);
[[nodiscard]] loam_status try_resize(void* block, size_t bytes);

/// LOAM_OK, LOAM_WRONG_HEAP or LOAM_INVALID_BLOCK. With `surely` it searches every cache, and a
/// broken canary is LOAM_CORRUPT.
[[nodiscard]] loam_status check(const void* block, bool surely);

[[nodiscard]] loam_status lock();
[[nodiscard]] loam_status try_lock();
[[nodiscard]] loam_status unlock();
/// For the child of fork(): locks of other threads become free.
void reset_after_fork();
[[nodiscard]] loam_status walk_next(loam_walk_entry* entry);
void summary(loam_heap_summary* out);

}  // namespace loam::default_heap
