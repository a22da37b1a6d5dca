// What happens after a caller's mistake was found (see base/check.h for the calls).
#pragma once

namespace loam {

enum class CorruptionPolicy {
  kAbort,   ///< one line, then abort(): the default
  kReport,  ///< one line, the operation is dropped, the program goes on
  kTerminate,  ///< as kAbort; and calls that could answer with a status abort too
};

/// Thread-safe.
void set_corruption_policy(CorruptionPolicy to);
[[nodiscard]] CorruptionPolicy corruption_policy();

}  // namespace loam
