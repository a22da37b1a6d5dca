// Commit charge: Windows counts committed memory against a limit of the whole machine, whether it
// was touched or not. So free pages that go back there are decommitted, and committed again before
// they are used, which the system may refuse.
//
//   discard --> purge(), and the charge is returned --commit_again--> readable, writable, zero
//
// Linux has no such count. There discard() is purge(), and commit_again() does nothing.
#pragma once

#include "os/os.h"

namespace loam::os {

/// Bytes that the heap and its tables have committed. The count is exact, because every call
/// updates it. Defined only where the system charges them.
extern uint64_t charged_bytes;

#if defined(_WIN32)

inline constexpr bool kChargesCommit = true;

/// As purge(), for memory that is not touched before commit_again().
[[nodiscard]] bool discard(void* address, size_t bytes);

/// Call before discarded memory is used; other committed memory in the range stays as it is. The
/// discarded memory reads as zero. False when refused: some of it may still be discarded.
[[nodiscard]] bool commit_again(void* address, size_t bytes);

#else

inline constexpr bool kChargesCommit = false;

[[nodiscard]] LOAM_INLINE bool discard(void* address, size_t bytes) {
  return purge(address, bytes);
}
[[nodiscard]] LOAM_INLINE bool commit_again(void*, size_t) { return true; }

#endif

}  // namespace loam::os
