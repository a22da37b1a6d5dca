// What the observers know of each thread. All zero until one of them watches a call: the object
// lies where a thread's start does not touch it.
#pragma once

#include "observers/call_counts.h"
#include "os/random.h"

namespace loam {

struct ObservedThread {
  uint8_t probe_era;        ///< the lowest bits of the probes' era when this thread last looked
  uint64_t bytes_to_probe;  ///< bytes up to the next block that the probes report; 0 = not drawn
  uint64_t until_sample;    ///< calls; 0 = not drawn yet
  QuickRandom random;
  CallCounts calls;  ///< the owner writes, any thread reads

  /// Counts calls down to the next sample; true when this call is one. On average one in `mean`
  /// calls is.
  [[nodiscard]] bool sample_is_due(uint64_t mean) {
    if (LOAM_LIKELY(until_sample > 1)) {
      --until_sample;
      return false;
    }
    const bool due = until_sample == 1;
    until_sample = random.around(mean);
    return due;
  }
};

}  // namespace loam
