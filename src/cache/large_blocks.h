// Blocks of whole pages for every heap: such a block has a run of pages in a region, up to kMaxRun,
// or a mapping of its own.
//
// Thread-safe: the page heap and the table of huge blocks lock themselves.
#pragma once

#include "base/config.h"

namespace loam {

/// Requests above this fail at once: ptrdiff_t could not measure the block.
inline constexpr size_t kLargestRequest = static_cast<size_t>(PTRDIFF_MAX);

/// A block of whole pages for the default heap (owner 0) or a private one (the address of its run's
/// record, which the caller then enters into the span's record). Null when memory is refused.
/// *zero: in, whether the block should read as zero; out, whether it does. `extra` bytes are added
/// behind the requested ones.
[[nodiscard]] void* allocate_large_block(size_t bytes, size_t alignment, uint64_t owner, bool* zero,
                                         size_t extra = 0);

}  // namespace loam
