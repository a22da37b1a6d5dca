// The counts of a thread's calls: all calls while sampling is on, none while it is off.
//
// The owner thread writes it, with one relaxed store for each field, so that readers in this
// process and in others see values that were true. The sums for ended threads are under the
// registry's lock.
#pragma once

#include "base/bits.h"
#include "base/owned_counter.h"

namespace loam {

struct CallCounts {
  static constexpr unsigned kBands = 3;      ///< up to 1 KiB, up to 8 KiB, above
  static constexpr unsigned kTimeBins = 32;  ///< powers of two of nanoseconds; the last one is open

  uint64_t allocs[kBands];
  uint64_t frees[kBands];
  uint64_t alloc_hits;
  uint64_t free_hits;
  uint64_t timed_allocs[2];  ///< [0] served by the magazine, [1] not
  uint64_t timed_alloc_ns[2];
  uint64_t timed_frees[2];
  uint64_t timed_free_ns[2];
  uint64_t alloc_log2_ns[kTimeBins];
  uint64_t free_log2_ns[kTimeBins];

  [[nodiscard]] static unsigned band_of(size_t block_bytes) {
    return block_bytes <= 1024 ? 0 : block_bytes <= 8192 ? 1 : 2;
  }
  [[nodiscard]] static unsigned time_bin(uint64_t ns) {
    const unsigned bin = ns == 0 ? 0 : highest_bit(ns);
    return bin < kTimeBins ? bin : kTimeBins - 1;
  }
};
static_assert(sizeof(CallCounts) == 80 * sizeof(uint64_t), "add_counts() goes over it as an array");

}  // namespace loam
