// Whether a block of the default heap is live: what its span's record says, what caches hold, and
// what the hardened heap knows.
//
// Any value is answered.
#pragma once

#include "base/config.h"

namespace loam {

/// Whether a block of the default heap starts there that is not known to be free: it may stand in
/// another thread's cache, or in the calling thread's for long.
[[nodiscard]] bool seems_live(const void* block);

/// The same, all caches searched; one on its way home in a batch may still be called live.
[[nodiscard]] bool is_live(const void* block);

}  // namespace loam
