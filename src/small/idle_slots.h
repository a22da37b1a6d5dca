// Which of a bin's free slots nobody wants, so that pages under them may go back: arithmetic over
// counts.
//
//   unwanted   = the fewest slots that were free at any time since the last period but one began
//   backed     = bytes of free slots, but those of pages that went back
//   settled    = backed at the end of the last search that met every span: what is left shares pages with live blocks
//   watched      backed > settled + kStep: periods are counted, and somebody must come and look
//
// A bin takes from its fullest spans, so what it does not want lies in the emptiest.
//
// Under the bin's lock, but for watched() and settle(), which one thread at a time calls without
// it: they guess.
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

/// What a search for unwanted pages pays for a span that gives some back, where one that is only
/// met costs a look. Chosen: a system call, about.
inline constexpr unsigned kLooksAPurge = 16;

class IdleSlots {
 public:
  /// Free bytes of a class that are its own breathing, and not worth a search. Chosen: a search for
  /// less would touch more records than it gives back pages.
  static constexpr size_t kStep = size_t{128} << 10;
  /// Chosen: twice as long as a free page lies idle before it goes for nothing
  /// (PurgePolicy::kSoonMs), since a page here costs a search besides. What is unwanted was free
  /// for one period at least, and for two at most.
  static constexpr uint64_t kPeriodMs = 1000;

  /// True where a watch begins. Called when slots came back.
  [[nodiscard]] LOAM_INLINE bool begin_watch(size_t backed_bytes) {
    if (LOAM_LIKELY(is_settled(backed_bytes)) || watched()) return false;
    least_ = before_ = 0;
    watched_.store(true, std::memory_order_relaxed);
    return true;
  }
  [[nodiscard]] bool watched() const { return watched_.load(std::memory_order_relaxed); }

  /// Slots were taken, so many are left.
  LOAM_INLINE void note(size_t free_slots) {
    if (free_slots < least_) least_ = free_slots;
  }

  /// Unwanted ones are not the owner's any more.
  void give_away(size_t slots) {
    least_ -= slots < least_ ? slots : least_;
    before_ -= slots < before_ ? slots : before_;
  }

  void end_period(size_t free_slots) {
    before_ = least_;
    least_ = free_slots;
  }
  [[nodiscard]] size_t unwanted_slots() const { return before_ < least_ ? before_ : least_; }

  /// A search met every span.
  void end_watch(size_t backed_bytes) {
    settled_.store(backed_bytes, std::memory_order_relaxed);
    watched_.store(false, std::memory_order_relaxed);
  }
  /// Follows what is free downwards, so that its next rise is seen.
  void settle(size_t backed_bytes) {
    if (backed_bytes < settled_.load(std::memory_order_relaxed))
      settled_.store(backed_bytes, std::memory_order_relaxed);
    if (is_settled(backed_bytes)) watched_.store(false, std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] LOAM_INLINE bool is_settled(size_t backed_bytes) const {
    return backed_bytes <= settled_.load(std::memory_order_relaxed) + kStep;
  }

  size_t least_ = 0;
  size_t before_ = 0;
  std::atomic<size_t> settled_{0};
  std::atomic<bool> watched_{false};
};

}  // namespace loam
