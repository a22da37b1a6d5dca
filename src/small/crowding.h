// Whether threads meet at a lock so often that what it covers should be in more places than one.
//
// Under the lock.
#pragma once

#include "os/mutex.h"

namespace loam {

class Crowding {
 public:
  /// Waits and refusals between two looks: the lock is crowded where they came among fewer than
  /// kMostAWait acquisitions each. Two threads that meet now and then are better off with one
  /// place, where either uses what the other freed. Chosen.
  static constexpr uint64_t kWaitsALook = 64;
  static constexpr uint64_t kMostAWait = 32;

  /// True once in a while, where it is crowded.
  [[nodiscard]] LOAM_INLINE bool is_crowded_locked(const Mutex& mutex) {
    const uint64_t waits = mutex.contentions() + mutex.refusals();
    if (LOAM_LIKELY(waits - seen_waits_ < kWaitsALook)) return false;
    const uint64_t acquisitions = mutex.acquisitions();
    const bool crowded = acquisitions - seen_acquisitions_ < kWaitsALook * kMostAWait;
    seen_acquisitions_ = acquisitions;
    seen_waits_ = waits;
    return crowded;
  }

 private:
  // At the last look.
  uint64_t seen_acquisitions_ = 0;
  uint64_t seen_waits_ = 0;
};

}  // namespace loam
