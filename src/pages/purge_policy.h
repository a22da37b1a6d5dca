// How many free pages to give back, and when. Pure arithmetic over counts and clock readings, so
// that tests drive it through hours in microseconds.
//
//   soon   = peak use of the last kSoonMs                         what it is about to use again, most likely
//   again  = use now + what came back, at most the peak of the last kHoldMs
//   keep   = the larger of both - use now + kFloor                what the near future may need
//   idle   = dirty - keep                                         may go once nobody wanted it for kSoonMs
//   young  = the same                                             may go at once, against the budget
//
// What came back is how far use fell and rose again within kHoldMs, in the last kHoldMs or two. A
// program that goes in rounds keeps what its rounds need, and one whose peak never returned gives
// it back after kSoonMs. Who comes back for the first time pays one fault a page.
//
// A page that is purged too early costs a fault, so at most kPagesPerSecond / (pages that a second
// of faults brings) of the running time, all threads' together, goes into faults that we caused:
// the loss is bounded by design, and no cap on size can thrash. What has been idle goes for
// nothing.
//
// Not thread-safe: the page heap's lock covers it.
#pragma once

#include "base/units.h"

namespace loam {

class PurgePolicy {
 public:
  /// Chosen: a peak that comes back within this time is worth its pages meanwhile. Longer keeps
  /// more, shorter refaults more: rounds that are longer pay a fault a page each.
  static constexpr uint64_t kHoldMs = 4000;
  /// Chosen: what a program used within the last moment it is about to use again more often than
  /// not, and then a purge costs a fault and saves nothing. Counted by slots: a quarter of a second
  /// at least, half at most. Measured against twice and half as long (decision 3). A page that
  /// nobody wanted for this long goes without counting: it will not be missed much.
  static constexpr uint64_t kSoonMs = 500;
  /// Kept always: 1 MiB, so that small programs never pay.
  static constexpr Pages kFloor{256};
  /// Derived: 2 % of the running time at 2 us a page (1.4 to 1.9 us a fault measured, and 0.4 to
  /// give it back) is 10,000 pages a second for each running thread. Measured against 20,000 and
  /// 40,000 (decision 3).
  static constexpr int64_t kPagesPerSecond = 10'000;
  /// Chosen: of so many threads at most, since every purge interrupts all of them, under the page
  /// heap's lock.
  static constexpr uint64_t kMostRunning = 8;
  /// Chosen: how much unspent budget may gather; an eighth of a second of it.
  static constexpr int64_t kBudgetCap = kPagesPerSecond / 8;
  /// Measured: a purge after a while of other work costs 10 us before its first page (8 us for one
  /// page, 33 for 40, 71 for 128, 229 for 512). Against the budget go this many at once or none, so
  /// that the pages cost nearly what they must and fewer calls pay for one.
  static constexpr Pages kBatch{128};

  struct Decision {
    Pages idle;               ///< pages that may go from blocks idle since before idle_before_ms
    Pages young;              ///< pages that may go from any block; counts against the budget
    uint32_t idle_before_ms;  ///< blocks last freed into before this time are old
  };

  /// `running_ms`: what the process's threads have run for, together, since its start; 0 = not
  /// known, or no more than the time that went by since the last decision.
  [[nodiscard]] Decision decide(uint64_t now_ms, Pages used, Pages dirty, uint64_t running_ms = 0);

  /// Than the last decision.
  [[nodiscard]] bool is_later(uint64_t now_ms) const { return now_ms != last_ms_; }
  /// Nobody came for as long as a page is to lie idle: what went idle meanwhile waits at once.
  [[nodiscard]] bool ends_silence(uint64_t now_ms) const { return now_ms - last_ms_ >= kSoonMs; }

  /// Pages that were purged against the budget.
  void spend(Pages young) { spent_ += static_cast<int64_t>(young.count); }

  /// Notes use between decisions, so that short peaks count.
  void observe(Pages used) {
    if (used.count > peaks_[slot_]) peaks_[slot_] = used.count;
  }

  /// Of the last kHoldMs.
  [[nodiscard]] Pages recent_peak() const { return peak_of(kSlots); }
  /// Of the last kSoonMs.
  [[nodiscard]] Pages latest_peak() const { return peak_of(kSoonMs / kSlotMs); }

 private:
  static constexpr unsigned kSlots = 16;
  static constexpr uint64_t kSlotMs = kHoldMs / kSlots;
  static_assert(kSoonMs % kSlotMs == 0 && kSoonMs < kHoldMs, "peaks are known by slots");

  [[nodiscard]] Pages peak_of(unsigned slots) const;
  [[nodiscard]] size_t came_back() const;
  void end_slot(size_t used);

  uint64_t slot_began_ms_ = 0;
  uint64_t last_ms_ = 0;
  uint64_t last_running_ms_ = 0;
  int64_t spent_ =
      0;  // of kBudgetCap; may go into debt: a purge ends at a run's end, not inside it
  size_t peaks_[kSlots] = {};
  size_t came_back_ = 0;         // the most, in this round of the slots
  size_t came_back_before_ = 0;  // ... in the round before
  unsigned slot_ = 0;
};

}  // namespace loam
