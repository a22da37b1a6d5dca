// The arrays in which magazines lie: pieces of the heap's own memory, which grow with the magazine.
#pragma once

#include "cache/magazine_lengths.h"
#include "cache/magazines.h"
#include "cache/recent_frees.h"

namespace loam {

/// Lets a magazine use `capacity` slots, in the same array or in a longer one. False, and nothing
/// has changed, where memory is refused. Afterwards the caller sets the magazine's limits. pre: it
/// holds no more than that
[[nodiscard]] bool resize_array(unsigned size_class, Magazine m, Tuning& t, RecentFrees& recent,
                                unsigned capacity);
/// pre: its class has no magazine
void free_array(unsigned size_class, Magazine m, Tuning& t, RecentFrees& recent);

}  // namespace loam
