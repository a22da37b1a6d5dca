// A limit in bytes on what all threads together may keep: a floor, or a share of the heap where
// that is more. A thread that wants to keep more takes room first, and gives it back when it keeps
// less.
//
//   held = the sum of what was taken and not given back
//
// Thread-safe. An owner that records what it holds does so after take() and before give(): after a
// fork() in between, the child counts too much until it counts again, but never too little.
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

/// The room of all threads' magazines: these bytes, or the heap's size divided by kProcessShare.
/// Measured (decisions 16 and 55). Other rooms are parts of it: kept runs, which waste less, and
/// the magazines of private heaps have a quarter of the bytes; stashes, which empty themselves, a
/// sixteenth of the bytes and a quarter of the share.
inline constexpr size_t kProcessBytes = size_t{16} << 20;
inline constexpr size_t kProcessShare = 32;

/// `bytes` divided by `share`, or `least` if that is more.
[[nodiscard]] constexpr size_t share_of(size_t bytes, size_t share, size_t least) {
  const size_t part = bytes / share;
  return part < least ? least : part;
}

/// The limit is `kLeast` bytes, or the heap's size divided by `kShare` if that is more. All fields
/// are zero at first, so the object takes no bytes in the library's file (decision 18).
template <size_t kLeast, size_t kShare>
class SharedRoom {
 public:
  constexpr SharedRoom() = default;

  /// Counts `bytes` as held. Returns false, and counts nothing, if all threads together would then
  /// hold more than the limit for a heap of `heap_bytes`. A call at the same moment as one that is
  /// refused may be refused too.
  [[nodiscard]] bool take(size_t bytes, size_t heap_bytes) {
    // relaxed: the number alone matters, no other data is published by it
    if (LOAM_LIKELY(held_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= limit(heap_bytes)))
      return true;
    give(bytes);
    return false;
  }
  [[nodiscard]] static size_t limit(size_t heap_bytes) {
    return share_of(heap_bytes, kShare, kLeast);
  }

  /// pre: the bytes were taken before
  void give(size_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }

  /// For the child of a fork(); `bytes` is what its owners hold.
  void recount_after_fork(size_t bytes) { held_.store(bytes, std::memory_order_relaxed); }

  /// A recent value.
  [[nodiscard]] size_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  std::atomic<size_t> held_{0};
};

}  // namespace loam
