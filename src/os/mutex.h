// A lock of 4 bytes, and the two counts that a profiler needs: acquisitions, and acquisitions that
// waited.
//
//   state_: 0 free, 1 held, 2 held and a thread may sleep
//
// While the process has one thread, the lock is taken and released by plain loads and stores. An
// atomic instruction waits until every store before it has reached the cache. Where a program
// writes to blocks that are in no cache, that wait is most of the cost of a refill (decision 24).
//
// Only the holder writes the counts, so plain relaxed stores suffice. Readers may see a count that
// is one operation old. The lock is not recursive. It is usable as static storage before any
// constructor ran.
#pragma once

#include <atomic>

#include "base/config.h"
#include "os/os.h"

namespace loam {

class LOAM_CAPABILITY("mutex") Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  LOAM_INLINE void lock() LOAM_ACQUIRE() {
    if (LOAM_UNLIKELY(!take())) lock_contended();
  }

  [[nodiscard]] LOAM_INLINE bool try_lock() LOAM_TRY_ACQUIRE(true) {
    if (LOAM_LIKELY(take())) return true;
    refusals_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }

  LOAM_INLINE void unlock() LOAM_RELEASE() {
    if (os::is_single_threaded()) {
      std::atomic_signal_fence(std::memory_order_release);
      state_.store(0, std::memory_order_relaxed);
      return;
    }
    // release publishes what the holder wrote; pairs with the acquire in take()
    if (LOAM_UNLIKELY(state_.exchange(0, std::memory_order_release) == 2)) wake();
  }

  /// In the child of a fork: no other thread exists, whatever the state says.
  void reset_after_fork() { state_.store(0, std::memory_order_relaxed); }

  /// The process is aborted as soon as the holder has left this lock. pre: the caller holds it
  LOAM_COLD void abort_when_left();

  [[nodiscard]] bool is_locked() const { return state_.load(std::memory_order_relaxed) != 0; }
  [[nodiscard]] uint64_t acquisitions() const {
    return acquisitions_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t contentions() const {
    return contentions_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }

 private:
  friend struct CounterFields;

  // False where a thread holds the lock. The state does not depend on the way in which the lock was
  // taken, so a second thread may start while the first is inside.
  LOAM_INLINE bool take() {
    if (os::is_single_threaded()) {
      if (LOAM_UNLIKELY(state_.load(std::memory_order_relaxed) != 0)) return false;
      state_.store(1, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_acquire);
    } else {
      uint32_t expected = 0;
      // acquire pairs with the release in unlock()
      if (LOAM_UNLIKELY(!state_.compare_exchange_strong(expected, 1, std::memory_order_acquire,
                                                        std::memory_order_relaxed))) {
        return false;
      }
    }
    count(acquisitions_);
    return true;
  }

  static void count(std::atomic<uint64_t>& counter) {
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  LOAM_COLD void lock_contended();
  LOAM_COLD void wake();

  /// The lock behind which the process is aborted. One place suffices: of several threads that
  /// report at once, the first one ends the process.
  static std::atomic<const Mutex*> last_lock_;

  std::atomic<uint32_t> state_{0};
  std::atomic<uint32_t> refusals_{0};
  std::atomic<uint64_t> acquisitions_{0};
  std::atomic<uint64_t> contentions_{0};
};

/// As report_misuse() of base/check.h, for a caller that holds the lock. The line is written at
/// once. A process that ends is aborted when the lock has been left, because a handler of SIGABRT
/// may use the heap. `held`: the outermost lock that the caller holds. If it is null, or nothing
/// holds it, the process is aborted at once.
LOAM_COLD void report_misuse(const char* what, const void* address, Mutex* held);

/// Holds a Mutex for a scope.
class LOAM_CAPABILITY("scoped lock") Lock {
 public:
  explicit Lock(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace loam
