// The three kinds of check, and the one way to end the process.
//
//   LOAM_CHECK(c, what)   always on; for mistakes of a caller or of the system
//   LOAM_ASSERT(c)        debug builds; for mistakes that only Loam's own code can make
//   LOAM_INVARIANT(c)     debug builds with LOAM_CHECK_INVARIANTS; full walks, slow
//
// fatal() and report_misuse() write one line to standard error without allocating.
#pragma once

#include "base/config.h"

namespace loam {

/// Ends the process with one line on standard error: "loam: <what> (address 0x...)".
[[noreturn]] LOAM_COLD void fatal(const char* what, const void* address = nullptr);

/// A caller's mistake (double free, foreign pointer ...). Ends the process, or only reports when
/// the option LOAM_ON_CORRUPTION=report is set; then the caller must drop the operation.
LOAM_COLD void report_misuse(const char* what, const void* address);

}  // namespace loam

#define LOAM_CHECK(condition, what)                       \
  do {                                                    \
    if (LOAM_UNLIKELY(!(condition))) ::loam::fatal(what); \
  } while (false)

#if defined(LOAM_DEBUG)
#define LOAM_STRINGIFY_(x) #x
#define LOAM_STRINGIFY(x) LOAM_STRINGIFY_(x)
#define LOAM_ASSERT(condition) \
  LOAM_CHECK(condition, "assertion " #condition " at " __FILE__ ":" LOAM_STRINGIFY(__LINE__))
#else
#define LOAM_ASSERT(condition) static_cast<void>(sizeof(!(condition)))
#endif

#if defined(LOAM_DEBUG) && defined(LOAM_CHECK_INVARIANTS)
#define LOAM_INVARIANT(condition) LOAM_ASSERT(condition)
#else
#define LOAM_INVARIANT(condition) static_cast<void>(sizeof(!(condition)))
#endif
