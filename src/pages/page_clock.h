// The time at which the page heap does what it does, and when it last looked at what is seldom
// looked at.
//
// Lock: the page heap's.
#pragma once

#include "os/os.h"

namespace loam {

/// How many page operations pass between two looks at the clock. Chosen: a look costs about 5 ns,
/// an operation 50; more delays the purge of a slow program, whose ticks come from its caches
/// anyway.
inline constexpr unsigned kOperationsPerTick = 32;

class PageClock {
 public:
  enum Look : unsigned { kParked, kRecords, kSurplus, kLooks };

  /// Milliseconds, as of the last read().
  [[nodiscard]] uint64_t now_ms() const { return now_ms_; }
  void read() { now_ms_ = os::now_coarse_ms(); }
  /// Counts an operation; true when a tick is due.
  [[nodiscard]] bool ends_count() {
    if (++operations_ < kOperationsPerTick) return false;
    operations_ = 0;
    return true;
  }

  /// Whether the last look is at least so long ago.
  [[nodiscard]] bool is_due(Look look, uint64_t after_ms) const {
    return now_ms_ - looked_ms_[look] >= after_ms;
  }
  void note(Look look) { looked_ms_[look] = now_ms_; }

 private:
  uint64_t now_ms_ = 0;
  unsigned operations_ = 0;
  uint64_t looked_ms_[kLooks] = {};
};

}  // namespace loam
