// What goes back while nobody calls the heap: a thread that waits asks here now and then, for there
// is no clock (decision 136). The thread that asks is one whose wait is split (api/waits.c), or
// the thread of LOAM_BACKGROUND_PURGE.
//
//   much waits   more is free and backed than a fall leaves
//   silent       no page operation came for PurgePolicy::kSilenceMs
//   held         use rose again after a silence before: it is waited for
//
// Locks: settle() takes those of the heap, one after the other.
#pragma once

#include "base/config.h"
#include "base/go_on.h"

namespace loam::heap {

/// The answer of settle() if nothing is left to do.
inline constexpr uint64_t kNoMoreLooks = UINT64_MAX;

/// Gives back what a clock would have given back by now, if the heap is silent. It does nothing
/// where a lock is held, so that it may be called in a handler of a signal that interrupted the
/// heap; it does not touch the thread's cache, which has no lock. Between pieces, each of some
/// milliseconds at most, it asks whether it may go on. Returns the milliseconds after which another
/// look is worth its time. pre: signals are blocked
[[nodiscard]] uint64_t settle(const GoOn& go_on);

}  // namespace loam::heap

/// For api/waits.c, in nanoseconds.
extern "C" {
[[gnu::visibility("hidden")]] bool loam_much_waits(void);
/// Until the heap will have been silent long enough, if no call comes.
[[gnu::visibility("hidden")]] uint64_t loam_until_silence(void);
[[gnu::visibility("hidden")]] uint64_t loam_settle(bool (*go_on)(void*), void* context);
[[gnu::visibility("hidden")]] uint64_t loam_now(void);
}
