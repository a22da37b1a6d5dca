// Whether threads contend for a lock so often that its data should be split into several parts.
//
// Under the lock.
#pragma once

#include "os/mutex.h"

namespace loam {

class Crowding {
 public:
  /// The waits and refusals between two looks. The lock is crowded if there are fewer than
  /// kMostAWait acquisitions for each of them. Two threads that contend only now and then are
  /// better off with one part, where each uses the memory that the other freed. Chosen.
  static constexpr uint64_t kWaitsALook = 64;
  static constexpr uint64_t kMostAWait = 32;

  /// True, once in a while, if the lock is crowded.
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
