// How often a thread's cache has to ask the bins, in frees: whether longer magazines would save
// anything.
#pragma once

#include <cstdint>

#include "base/config.h"

namespace loam {

/// A moving average over the last kRecent slow operations or so. One thread's; starts as if they
/// were frequent.
class MissRate {
 public:
  /// A slow operation costs what some thirty frees do (150 to 250 ns to 7): from so many frees on
  /// between two of them, what is left to save is less than the frees themselves. Measured
  /// (decision 51).
  static constexpr uint32_t kRare = 32;

  /// `frees`: of the thread, so far.
  LOAM_INLINE void note_slow_operation(uint64_t frees) {
    const uint64_t since = frees - seen_frees_;
    seen_frees_ = frees;
    // A long rest counts as twice kRare, so that a few operations that come fast change the answer.
    average_ += (since < 2 * kRare ? static_cast<uint32_t>(since) : 2 * kRare) - average_ / kRecent;
  }
  [[nodiscard]] bool is_low() const { return average_ > kRare * kRecent; }

 private:
  static constexpr uint32_t kRecent = 8;

  uint32_t average_ = 0;  // of frees between two slow operations, in kRecent-ths
  uint64_t seen_frees_ = 0;
};

}  // namespace loam
