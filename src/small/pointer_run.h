// Runs of pointers that are a fixed step apart. A span's neighbouring slots form such a run in a
// batch when they are handed out and, usually, when they come back. A run costs two to four
// instructions a pointer.
#pragma once

#include "base/config.h"

namespace loam {

/// The length of the run at the beginning of the addresses at(0), at(1), ..: each is `step` bytes
/// behind the one before. At least 1. pre: count >= 1
template <class At>
[[nodiscard]] LOAM_INLINE unsigned run_length_of(At at, unsigned count, ptrdiff_t step) {
  const uintptr_t distance = static_cast<uintptr_t>(step);
  uintptr_t next = at(0) + distance;
  unsigned n = 1;
  for (; count - n >= 4; n += 4) {
    if (at(n) != next) return n;
    if (at(n + 1) != (next += distance)) return n + 1;
    if (at(n + 2) != (next += distance)) return n + 2;
    if (at(n + 3) != (next += distance)) return n + 3;
    next += distance;
  }
  for (; n != count && at(n) == next; ++n) next += distance;
  return n;
}

/// The same for an array of pointers.
[[nodiscard]] LOAM_INLINE unsigned run_length(void* const* pointers, unsigned count,
                                              ptrdiff_t step) {
  return run_length_of([pointers](unsigned i) { return reinterpret_cast<uintptr_t>(pointers[i]); },
                       count, step);
}

/// Writes `count` addresses from `first` on, `step` bytes apart, below `end`, the last one lowest.
/// Returns the place of the last one.
LOAM_INLINE void** fill_run_downwards(void** end, uintptr_t first, size_t step, unsigned count) {
  for (; count >= 4; count -= 4, first += 4 * step) {
    end -= 4;
    end[3] = reinterpret_cast<void*>(first);
    end[2] = reinterpret_cast<void*>(first + step);
    end[1] = reinterpret_cast<void*>(first + 2 * step);
    end[0] = reinterpret_cast<void*>(first + 3 * step);
  }
  for (; count != 0; --count, first += step) *--end = reinterpret_cast<void*>(first);
  return end;
}

}  // namespace loam
