// What happens after a caller's mistake was found (see base/check.h for the calls).
#pragma once

namespace loam {

enum class CorruptionPolicy {
  kAbort,   ///< one line, then abort(): the default
  kReport,  ///< one line, the operation is dropped, the program goes on
};

/// Not thread-safe; set once at start.
void set_corruption_policy(CorruptionPolicy to);

}  // namespace loam
