// Generated from formats/counters.toml by tools/gen_counters.py; do not edit. A test compares.
#pragma once

#include <cstring>

#include "counters/stats.h"

namespace loam::stats {

// What is made of an unknown counter is unknown.

inline uint64_t known_or_0(uint64_t a) { return a == kUnknown ? 0 : a; }

inline uint64_t plus(uint64_t a, uint64_t b) {
  uint64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? kUnknown : sum;
}

/// 0 where `b` is larger: figures are read one after the other, while the program runs.
inline uint64_t minus(uint64_t a, uint64_t b) {
  if (a == kUnknown || b == kUnknown) return kUnknown;
  return a > b ? a - b : 0;
}

/// The bits of a double; of 0 / 0 those of 0.
inline uint64_t ratio(uint64_t part, uint64_t whole) {
  if (part == kUnknown || whole == kUnknown) return kUnknown;
  const double value = whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// clang-format off
/// Counters of a heap that are made of other counters alone.
inline void derive_heap(uint64_t* v) {
  v[kUsedBytes] = plus(plus(plus(plus(v[kLiveBytes], v[kCachedBytes]), v[kSpanFreeBytes]), v[kSpanTailBytes]), known_or_0(v[kSetAsideBytes]));
}

/// The same of the process. pre: derive_heap() has run for the sum of its heaps
inline void derive_process(uint64_t* v) {
  v[kLiveBytes] = plus(plus(v[kLiveSmallBytes], v[kLiveLargeBytes]), v[kLiveHugeBytes]);
  v[kLiveBlocks] = plus(plus(v[kLiveSmallBlocks], v[kLiveLargeBlocks]), v[kLiveHugeBlocks]);
  v[kLargeFrees] = minus(minus(v[kLargeAllocs], v[kLiveLargeBlocks]), v[kLiveHugeBlocks]);
  v[kPurgedBytes] = plus(minus(v[kFreeRunBytes], v[kDirtyBytes]), v[kUnbackedBytes]);
  v[kFreeBytes] = minus(plus(v[kSpanFreeBytes], v[kDirtyBytes]), v[kUnbackedBytes]);
  v[kVirtualRatio] = ratio(v[kCommittedBytes], v[kReservedBytes]);
  v[kAllocs] = plus(plus(v[kAllocsTo1k], v[kAllocsTo8k]), v[kAllocsOver8k]);
  v[kBackedBytes] = minus(v[kCommittedBytes], v[kPurgedBytes]);
  v[kFrees] = plus(plus(v[kFreesTo1k], v[kFreesTo8k]), v[kFreesOver8k]);
  v[kFreeRatio] = ratio(v[kFreeBytes], v[kBackedBytes]);
}
// clang-format on

}  // namespace loam::stats
