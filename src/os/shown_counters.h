// Counters that the system's own monitor shows. On Windows this is Performance Monitor, which reads
// them from this process while a user looks at them.
#pragma once

#include "base/config.h"

namespace loam::os {

struct ShownCounter {
  uint32_t id;  ///< as in the registered list (packaging/loam_counters.man)
  bool grows;   ///< shown as a rate
};

#if defined(_WIN32)

inline constexpr bool kShowsCounters = true;

/// Shows the values at `values`, one for each counter, until the process ends; they may change at
/// any time. Call once. False when the system refused.
bool show_counters(const ShownCounter* counters, const uint64_t* values, unsigned count);

#else

inline constexpr bool kShowsCounters = false;
inline bool show_counters(const ShownCounter*, const uint64_t*, unsigned) { return false; }

#endif

}  // namespace loam::os
