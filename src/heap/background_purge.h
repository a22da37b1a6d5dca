// A thread that purges for the page heap in a process that has gone quiet; only with
// LOAM_BACKGROUND_PURGE=on.
//
// Without it a process whose peak came back before, and whose threads all wait for conditions or in
// calls that cannot be split (heap/silence.h), keeps that peak. It is an option, never the default:
// a second thread would cost single-threaded programs the C library's fast paths, and break
// programs that unshare(2) or fork without exec.
//
//   off --enable()--> idle --poke(), something is worth purging--> starting --> running
//                      ^                                              |refused     |fork()
//                      |                                              v            |
//                      +<---------------- fork() ------------------ failed <-------+
//
// The thread makes the looks that a clock would make (heap::settle()), and allocates nothing.
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

class BackgroundPurge {
 public:
  /// Call once, at start-up.
  void enable() { state_.store(State::kIdle, std::memory_order_relaxed); }

  /// Call from slow paths that hold no lock, or at an outermost call of malloc's family. Starts the
  /// thread if it is wanted and not there. `worth`: some pages may soon have to be purged.
  LOAM_INLINE void poke(bool worth) {
    // relaxed: start() decides again with an exchange
    if (LOAM_LIKELY(!is_idle() || !worth)) return;
    start();
  }

  /// True if a poke() that is worth it starts the thread.
  [[nodiscard]] LOAM_INLINE bool is_idle() const {
    return state_.load(std::memory_order_relaxed) == State::kIdle;
  }

  /// For the child of fork(), which has no such thread.
  void reset_after_fork() {
    if (state_.load(std::memory_order_relaxed) != State::kOff) enable();
  }

 private:
  enum class State : uint8_t { kOff, kIdle, kStarted };  // a start that fails is not repeated
  LOAM_NOINLINE void start();
  static void run();

  std::atomic<State> state_{State::kOff};
};

extern constinit BackgroundPurge background_purge;

}  // namespace loam
