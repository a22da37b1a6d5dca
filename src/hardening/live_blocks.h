// Whether a block of the default heap is live, from its span's record, from the caches, and from
// the hardened heap.
//
// Any value is answered.
#pragma once

#include "base/config.h"

namespace loam {

/// True if a block of the default heap starts there and is not known to be free. It may be free in
/// another thread's cache, or deep in the calling thread's cache.
[[nodiscard]] bool seems_live(const void* block);

/// The same after a search of all caches; a block that returns in a batch may still be called live.
[[nodiscard]] bool is_live(const void* block);

}  // namespace loam
