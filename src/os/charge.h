// Commit charge: Windows counts committed memory against a limit of the whole machine, whether it
// was touched or not. So free pages that go back there are decommitted, and committed again before
// they are used, which the system may refuse.
//
//   discard --> purge(), and the charge is returned --commit_again--> readable, writable, zero
//
// Linux counts no such thing. discard() is purge() there, and commit_again() is nothing.
#pragma once

#include "os/os.h"

namespace loam::os {

/// Bytes that the heap and its tables have committed: a count of every call, exact. Defined only
/// where they are charged.
extern uint64_t charged_bytes;

#if defined(_WIN32)

inline constexpr bool kChargesCommit = true;

/// As purge(), for memory that nobody touches before commit_again().
[[nodiscard]] bool discard(void* address, size_t bytes);

/// Before discarded memory is used; other committed memory in the range stays as it is. What was
/// discarded reads as zero. False when refused: what was discarded may be so still.
[[nodiscard]] bool commit_again(void* address, size_t bytes);

#else

inline constexpr bool kChargesCommit = false;

[[nodiscard]] LOAM_INLINE bool discard(void* address, size_t bytes) {
  return purge(address, bytes);
}
[[nodiscard]] LOAM_INLINE bool commit_again(void*, size_t) { return true; }

#endif

}  // namespace loam::os
