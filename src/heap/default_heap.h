// The default heap, the one behind malloc(), with the calls of a private one. What it cannot do as
// they do is said in <loam/loam.h>: its lock excludes lockers only, and a walk takes slots in
// caches for live ones.
#pragma once

#include <loam/loam.h>

#include "base/config.h"

namespace loam::default_heap {

[[nodiscard]] void* allocate(size_t bytes, size_t alignment, bool zero, loam_status* why);
[[nodiscard]] loam_status free(void* block);
[[nodiscard]] void* reallocate(void* block, size_t bytes, size_t alignment, bool zero,
                               loam_status* why);
[[nodiscard]] loam_status try_resize(void* block, size_t bytes);

/// LOAM_OK, LOAM_WRONG_HEAP or LOAM_INVALID_BLOCK; `surely`: every cache is searched, and a broken
/// canary is LOAM_CORRUPT.
[[nodiscard]] loam_status check(const void* block, bool surely);

[[nodiscard]] loam_status lock();
[[nodiscard]] loam_status try_lock();
[[nodiscard]] loam_status unlock();
/// In the child of fork(): what another thread had locked is free.
void reset_after_fork();
[[nodiscard]] loam_status walk_next(loam_walk_entry* entry);
void summary(loam_heap_summary* out);

}  // namespace loam::default_heap
