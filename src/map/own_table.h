// A table of Loam's own in a mapping of its own, between inaccessible pages: no overrun of other
// memory reaches it.
//
//   | guard | table | guard |
#pragma once

#include <cstddef>

#include "os/os.h"

namespace loam {

/// Zeroed memory for a table of `bytes`. Pass os::commit_sparse() for a table of which little is
/// used. Null when the system refuses.
[[nodiscard]] void* map_own_table(size_t bytes, bool (*commit)(void*, size_t) = &os::commit);

/// pre: map_own_table(bytes) returned `table`
void unmap_own_table(void* table, size_t bytes);

}  // namespace loam
