// Counters that one thread writes, or the holder of one lock, and that any thread may read. They
// need no locked instruction, and every value that a reader sees was true at some time. They only
// grow, and wrap.
#pragma once

#include "base/config.h"

namespace loam {

/// pre: the caller is the counter's one writer
LOAM_INLINE void count_up(uint64_t& counter, uint64_t more = 1) {
  __atomic_store_n(&counter, counter + more, __ATOMIC_RELAXED);
}

/// Adds every counter of `from`, which another thread may be writing, to that of `to`. pre: the
/// caller is the one writer of `to`; Counts consists of uint64_t alone
template <class Counts>
void add_counts(Counts& to, const Counts& from) {
  static_assert(sizeof(Counts) % sizeof(uint64_t) == 0 && alignof(Counts) == alignof(uint64_t));
  uint64_t* const sums = reinterpret_cast<uint64_t*>(&to);
  const uint64_t* const counters = reinterpret_cast<const uint64_t*>(&from);
  for (size_t i = 0; i < sizeof(Counts) / sizeof(uint64_t); ++i) {
    count_up(sums[i], __atomic_load_n(&counters[i], __ATOMIC_RELAXED));
  }
}

}  // namespace loam
