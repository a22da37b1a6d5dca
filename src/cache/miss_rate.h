// How many frees lie between two calls of a thread's cache to the bins. This tells whether longer
// magazines would save time.
#pragma once

#include <cstdint>

#include "base/config.h"

namespace loam {

/// A moving average over about the last kRecent slow operations of one thread. It starts as if they
/// were frequent.
class MissRate {
 public:
  /// A slow operation costs as much as some thirty frees (150 to 250 ns against 7). When more than
  /// this many frees lie between two slow operations, longer magazines can save less time than the
  /// frees themselves take. Measured (decision 51).
  static constexpr uint32_t kRare = 32;

  /// `frees`: all frees of the thread so far.
  LOAM_INLINE void note_slow_operation(uint64_t frees) {
    const uint64_t since = frees - seen_frees_;
    seen_frees_ = frees;
    // A long pause counts as twice kRare, so that a few operations in quick succession change the
    // answer.
    average_ += (since < 2 * kRare ? static_cast<uint32_t>(since) : 2 * kRare) - average_ / kRecent;
  }
  [[nodiscard]] bool is_low() const { return average_ > kRare * kRecent; }

 private:
  static constexpr uint32_t kRecent = 8;

  uint32_t average_ = 0;  // frees between two slow operations, in units of 1 / kRecent
  uint64_t seen_frees_ = 0;
};

}  // namespace loam
