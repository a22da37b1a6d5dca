// How much all threads together may keep back of something, in bytes: a floor, or a share of the
// heap where that is more. Who wants to keep more takes room first, and gives it back when it no
// longer may.
//
//   held = the sum of what was taken and not given back
//
// Thread-safe. An owner that writes down what it holds does so after take() and before give(): a
// fork() in between then finds too much counted in the child, never too little, until the child
// counts again.
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

/// At most `kLeast` bytes, or the heap's size divided by `kShare`. All zero at first, and so never
/// in the file (decision 18).
template <size_t kLeast, size_t kShare>
class SharedRoom {
 public:
  constexpr SharedRoom() = default;

  /// Counts `bytes` as held; false, and nothing happened, where that would be more than all may
  /// hold in a heap of `heap_bytes`. Others who ask at the same moment as one that is refused may
  /// be refused too.
  [[nodiscard]] bool take(size_t bytes, size_t heap_bytes) {
    const size_t by_share = heap_bytes / kShare;
    const size_t limit = by_share > kLeast ? by_share : kLeast;
    // relaxed: a number alone, nothing is published by it
    if (LOAM_LIKELY(held_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit))
      return true;
    give(bytes);
    // May lose one of two at once: who looks asks whether there were any.
    refusals_.store(refusals() + 1, std::memory_order_relaxed);
    return false;
  }

  /// pre: taken before
  void give(size_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }

  /// In the child of a fork(), with what its owners hold.
  void recount_after_fork(size_t bytes) { held_.store(bytes, std::memory_order_relaxed); }

  /// Changes when somebody is refused. Recent.
  [[nodiscard]] uint32_t refusals() const { return refusals_.load(std::memory_order_relaxed); }

  /// Recent.
  [[nodiscard]] size_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  std::atomic<size_t> held_{0};
  std::atomic<uint32_t> refusals_{0};
};

}  // namespace loam
