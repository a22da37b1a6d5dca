#include "os/mutex.h"

#include "base/check.h"
#include "base/cpu.h"
#include "os/fatal.h"

namespace loam {

constinit const char* os::single_thread_flag = nullptr;

namespace {
// Looks of a waiter before it sleeps. Chosen: critical sections are 50 to 300 ns, a pause is 10 to
// 40 ns, a futex round trip 2 to 5 us. More looks burn a core when the holder is preempted
// (two-core machines). Fewer pay the round trip for locks that are about to be free.
constexpr unsigned kSpins = 64;
}  // namespace

constinit std::atomic<const Mutex*> Mutex::last_lock_{nullptr};

void Mutex::lock_contended() {
  bool taken = false;
  for (unsigned i = 0; i < kSpins && !taken; ++i) {
    cpu_pause();
    uint32_t expected = 0;
    taken = state_.load(std::memory_order_relaxed) == 0 &&
            state_.compare_exchange_weak(expected, 1, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }
  // With state 2, unlock() wakes a waiter. To take the lock as 2 may cost one needless wake, and
  // never loses one.
  while (!taken) {
    taken = state_.exchange(2, std::memory_order_acquire) == 0;
    if (!taken) os::wait_while_equal(reinterpret_cast<const uint32_t*>(&state_), 2);
  }
  count(acquisitions_);
  count(contentions_);
}

void Mutex::wake() {
  os::wake_one(reinterpret_cast<const uint32_t*>(&state_));
  const Mutex* mine = this;
  if (LOAM_UNLIKELY(last_lock_.load(std::memory_order_relaxed) == mine) &&
      last_lock_.compare_exchange_strong(mine, nullptr, std::memory_order_relaxed))
    os::abort_process();
}

void Mutex::abort_when_left() {
  const Mutex* none = nullptr;
  // relaxed: the thread itself reads it, in wake()
  if (!last_lock_.compare_exchange_strong(none, this, std::memory_order_relaxed)) return;
  // unlock() looks for a 2 only where there may be other threads.
  if (os::is_single_threaded()) os::single_thread_flag = nullptr;
  state_.store(2, std::memory_order_relaxed);
}

void report_misuse(const char* what, const void* address, Mutex* held) {
  if (held == nullptr || !held->is_locked()) return report_misuse(what, address);
  write_report(what, address);
  if (corruption_policy() != CorruptionPolicy::kReport) held->abort_when_left();
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "futex waits on the word itself");

}  // namespace loam
