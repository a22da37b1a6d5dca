// How many of a bin's free slots are unwanted, so that their pages may be purged. Pure arithmetic
// over counts.
//
//   unwanted   = the fewest slots that were free at any time in this period and the one before
//   backed     = bytes of free slots, without those of purged pages
//   settled    = backed at the end of the last search that met every span: these slots share pages
//              with live blocks
//   watched      backed > settled + kStep: periods are counted, and ticks must search
//
// A bin takes from its fullest spans, so its unwanted slots are in the emptiest spans.
//
// Under the bin's lock, except for watched() and settle(). One thread at a time calls these without
// the lock, and their results are guesses.
#pragma once

#include <atomic>

#include "pages/purge_policy.h"

namespace loam {

/// The looks that a span costs in a search for unwanted pages if it gives pages back; any other
/// span costs one look. Chosen: about a system call.
inline constexpr unsigned kLooksAPurge = 16;

class IdleSlots {
 public:
  /// Free bytes of a class that come and go in normal use. Fewer are not worth a search: for pages
  /// to purge or to lend, or for slots of use to other classes. Chosen: such a search would touch
  /// more records than it gains pages.
  static constexpr size_t kStep = size_t{128} << 10;
  /// Twice as long as a free page lies idle before it is purged outside the budget, because a page
  /// here also costs a search (decision 31). An unwanted slot was free for at least one period; the
  /// count covers at most two.
  static constexpr uint64_t kPeriodMs = 2 * PurgePolicy::kSoonMs;

  /// True if a watch begins. Called when slots came back.
  [[nodiscard]] LOAM_INLINE bool begin_watch(size_t backed_bytes) {
    if (LOAM_LIKELY(is_settled(backed_bytes)) || watched()) return false;
    least_ = before_ = 0;
    watched_.store(true, std::memory_order_relaxed);
    return true;
  }
  [[nodiscard]] bool watched() const { return watched_.load(std::memory_order_relaxed); }

  /// Slots were taken, and `free_slots` are left.
  LOAM_INLINE void note(size_t free_slots) {
    if (free_slots < least_) least_ = free_slots;
  }

  /// `slots` unwanted slots no longer belong to the owner.
  void give_away(size_t slots) {
    least_ -= slots < least_ ? slots : least_;
    before_ -= slots < before_ ? slots : before_;
  }

  void end_period(size_t free_slots) {
    before_ = least_;
    least_ = free_slots;
  }
  [[nodiscard]] size_t unwanted_slots() const { return before_ < least_ ? before_ : least_; }

  /// The use of the slots fell: all that are free now are unwanted.
  void begin_fall(size_t free_slots) {
    least_ = before_ = free_slots;
    watched_.store(true, std::memory_order_relaxed);
  }
  /// The bytes that a search may find for a fall, or 0 where it is not worth its time: since the
  /// last one neither a good part of all free bytes came, nor did use fall by as much. The last
  /// used slots of many pages may be few bytes.
  [[nodiscard]] size_t fallen(size_t backed_bytes, size_t used_bytes) const {
    const size_t settled = settled_.load(std::memory_order_relaxed);
    const size_t since = backed_bytes > settled ? backed_bytes - settled : 0;
    const size_t all = backed_bytes < used_bytes ? backed_bytes : used_bytes;
    return since < kFallStep || since < all / kFallShare ? 0 : backed_bytes;
  }
  /// A search looks at every span, and there are some eight for each halving of use.
  static constexpr size_t kFallShare = PurgePolicy::kFallShare / 2;
  static constexpr size_t kFallStep = size_t{4} << 10;

  /// A search met every span.
  void end_watch(size_t backed_bytes) {
    settled_.store(backed_bytes, std::memory_order_relaxed);
    watched_.store(false, std::memory_order_relaxed);
  }
  /// Lowers `settled` with the free bytes, so that their next rise is noticed.
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
