// How far use fell, and how much of a fall came back (decision 104).
//
//   high       the peak from which use falls; low: the least use since
//   fallen     how far use fell on balance, without what was given back for that
//   came back  use rose again to the smaller of itself and high: that, less low
//
// Not thread-safe. The unit is the caller's.
#pragma once

#include <cstddef>

namespace loam {

class FallenUse {
 public:
  /// Returns what came back: 0 unless use rose.
  size_t note(size_t used) {
    if (used <= use_) {
      fallen_ += use_ - used;
      use_ = used;
      if (used < low_) low_ = used;
      return 0;
    }
    const size_t rise = used - use_;
    give_back(rise);
    use_ = used;
    const size_t came_back = (used < high_ ? used : high_) - low_;
    if (used >= high_) high_ = low_ = used;
    return came_back;
  }
  /// So much of what fell is no longer there to be given back.
  void give_back(size_t gone) { fallen_ -= gone < fallen_ ? gone : fallen_; }
  /// A higher peak comes back no more, nor does anything from below `low`.
  void forget(size_t high, size_t low) {
    high_ = high;
    low_ = low;
  }
  /// Nothing that fell so far comes back.
  void forget() { forget(use_, use_); }

  [[nodiscard]] size_t use() const { return use_; }
  [[nodiscard]] size_t fallen() const { return fallen_; }
  [[nodiscard]] size_t high() const { return high_; }

 private:
  size_t use_ = 0;  // as last seen
  size_t fallen_ = 0;
  size_t high_ = 0;
  size_t low_ = 0;
};

/// The most in this round, and in the one before.
class RecentMost {
 public:
  void note(size_t value) {
    if (value > now_) now_ = value;
  }
  void end_round() {
    before_ = now_;
    now_ = 0;
  }
  [[nodiscard]] size_t most() const { return now_ > before_ ? now_ : before_; }

 private:
  size_t now_ = 0;
  size_t before_ = 0;
};

}  // namespace loam
