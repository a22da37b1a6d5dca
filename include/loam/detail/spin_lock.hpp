// A lock for a few dozen instructions: one byte's worth of state, no fairness.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace loam::detail {

/// Tells the processor that this is a waiting loop.
inline void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) && defined(__GNUC__)
  __asm__ __volatile__("isb" ::: "memory");
#endif
}

/// Waits a little longer each time, then lets other threads run: the thread that holds the lock may
/// be descheduled.
class backoff {
 public:
  void wait() noexcept {
    if (turns_ > kMostPauses) return std::this_thread::yield();
    for (unsigned i = 0; i < turns_; ++i) pause();
    turns_ *= 2;
  }

 private:
  static constexpr unsigned kMostPauses = 64;
  unsigned turns_ = 1;
};

class spin_lock {
 public:
  void lock() noexcept {
    for (backoff b; !try_lock(); b.wait()) {
    }
  }
  bool try_lock() noexcept {
    // The load comes first: a waiting thread does not take the cache line from the holder.
    return state_.load(std::memory_order_relaxed) == 0 &&
           state_.exchange(1, std::memory_order_acquire) == 0;  // pairs with unlock()
  }
  void unlock() noexcept { state_.store(0, std::memory_order_release); }

 private:
  std::atomic<std::uint32_t> state_{0};
};

}  // namespace loam::detail
