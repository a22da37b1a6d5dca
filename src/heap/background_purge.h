// A thread that looks after the page heap in a process that has gone quiet; only with
// LOAM_BACKGROUND_PURGE=on.
//
// Without it a process that stops calling malloc and free keeps what it has, for purging is done by
// its callers. It is an option, never the default: a second thread would cost single-threaded
// programs the C library's fast paths, and break those that unshare(2) or fork without exec.
//
//   off --enable()--> idle --poke(), something is worth purging--> starting --> running
//                      ^                                              |refused     |fork(): the child has no thread
//                      |                                              v            |
//                      +<---------------- fork() ------------------ failed <-------+
//
// The thread holds no lock but the page heap's, a tick at a time, and allocates nothing.
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

class BackgroundPurge {
 public:
  /// Chosen: while something waits to be purged. Shorter gives back smoother, longer wakes an idle
  /// machine less.
  static constexpr unsigned kBusyMs = 100;
  /// Chosen: while nothing waits. It bounds how late the thread notices.
  static constexpr unsigned kIdleMs = 1000;

  /// Once, at start-up.
  void enable() { state_.store(State::kIdle, std::memory_order_relaxed); }

  /// From slow paths that hold no lock, or at an outermost call of malloc's family: starts the
  /// thread if it is wanted and not there. `worth`: something may soon want purging.
  LOAM_INLINE void poke(bool worth) {
    // relaxed: start() decides again with an exchange
    if (LOAM_LIKELY(!is_idle() || !worth)) return;
    start();
  }

  /// Whether a poke() that is worth it starts the thread.
  [[nodiscard]] LOAM_INLINE bool is_idle() const {
    return state_.load(std::memory_order_relaxed) == State::kIdle;
  }

  /// In the child of fork(), which has no such thread.
  void reset_after_fork() {
    if (state_.load(std::memory_order_relaxed) != State::kOff) enable();
  }

  /// False also where the system refused the thread.
  [[nodiscard]] bool is_running() const {
    return state_.load(std::memory_order_relaxed) == State::kRunning;
  }

 private:
  enum class State : uint8_t { kOff, kIdle, kStarting, kRunning, kFailed };
  LOAM_NOINLINE void start();
  static void run();

  std::atomic<State> state_{State::kOff};
};

extern constinit BackgroundPurge background_purge;

}  // namespace loam
