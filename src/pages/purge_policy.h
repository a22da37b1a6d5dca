// How many free pages to give back, and when. Pure arithmetic over counts and clock readings, so
// that tests drive it through hours in microseconds.
//
//   soon   = peak use of the last kSoonMs                  most likely used again soon
//   again  = use now + `came back`, at most the peak of the last kSilenceMs
//   late   = use now + `came back late`, at most the peak of the last kHoldMs
//   keep   = the largest of the three - use now + kFloor   the near future may need them
//   idle   = dirty - keep                                  may go if none took them for kSoonMs
//   young  = the same                                      may go at once, against the budget
//   fallen = how far use fell on balance, without pages that went for that
//   bound  = the larger of `came back` and used / kFallShare + kFallFloor
//   fall   = the smaller of dirty and fallen, while it exceeds bound   goes at once, no budget
//
// `Came back` is how far use fell and rose again within kHoldMs, in the last kHoldMs or two. A
// program that works in rounds keeps the pages that its rounds need. A program whose peak never
// returned gives the pages back while it falls, because there may be no call afterwards. When a
// peak returns for the first time, it costs one fault a page. `Came back late` is the part that
// was away for a whole slot at least: only this is waited for after kSilenceMs. A thread that waits
// for so long keeps what came back after such a silence (decision 136).
//
// A page that is purged too early costs a fault. The budget allows kPagesPerSecond of them, so at
// most kPagesPerSecond / (pages that a second of faults brings) of the running time of all threads
// together goes into faults that the policy caused. So the loss is bounded by design, and there is
// no cap on size that could thrash. Idle pages are purged outside the budget.
//
// Not thread-safe: the page heap's lock covers it.
#pragma once

#include "base/units.h"
#include "pages/fallen_use.h"

namespace loam {

class PurgePolicy {
 public:
  /// Chosen: a peak that comes back within this time is worth its pages meanwhile. A longer time
  /// keeps more pages. A shorter time causes more faults, because a program with longer rounds pays
  /// one fault a page in each round.
  static constexpr uint64_t kHoldMs = 4000;
  /// Chosen: a program will usually soon use again the memory that it used within this time. Then a
  /// purge costs a fault and saves nothing. Time is counted in slots: at least a quarter of a
  /// second, at most half. Measured against twice and half as long (decision 3). A page that no
  /// request took for this long is purged outside the budget, because the program is unlikely to
  /// miss it.
  static constexpr uint64_t kSoonMs = 500;
  /// Use is remembered in slots of this length.
  static constexpr unsigned kSlots = 16;
  static constexpr uint64_t kSlotMs = kHoldMs / kSlots;
  static_assert(kSoonMs % kSlotMs == 0 && kSoonMs < kHoldMs, "peaks are known by slots");
  /// Without a step of the policy for so long, the heap is silent: the latest peak is then over.
  static constexpr uint64_t kSilenceMs = kSoonMs + kSlotMs;
  /// These pages are always kept: 1 MiB, so that small programs never pay.
  static constexpr Pages kFloor{256};
  /// While use falls, at most this part of it and kFallFloor stay free: the heap then holds at most
  /// a sixteenth more than it uses. Each purge halves what is free, so a fall is few purges. Chosen
  /// (decision 104). A thread looks at a fall for each half of this part.
  static constexpr size_t kFallShare = 16;
  /// Half a fall's bound is kFloor, so a small program purges no more often than without the bound.
  static constexpr Pages kFallFloor{2 * kFloor.count};
  /// Derived: 2 % of the running time at 2 us a page (1.4 to 1.9 us a fault measured, and 0.4 to
  /// give it back) is 10,000 pages a second for each running thread. Measured against 20,000 and
  /// 40,000 (decision 3).
  static constexpr int64_t kPagesPerSecond = 10'000;
  /// The budget counts the running time of at most this many threads. Chosen: every purge
  /// interrupts all of them, under the page heap's lock.
  static constexpr uint64_t kMostRunning = 8;
  /// The most unspent budget, in pages: that of an eighth of a second.
  static constexpr int64_t kBudgetCap = kPagesPerSecond / 8;
  /// Measured: a purge after a while of other work costs 10 us before its first page (8 us for one
  /// page, 33 for 40, 71 for 128, 229 for 512). Against the budget this many pages or more go at
  /// once, or none. So the cost of the pages dominates the cost of a call, and fewer calls of the
  /// program pay for a purge.
  static constexpr Pages kBatch{128};

  struct Decision {
    Pages idle;               ///< pages that may go from slabs idle since before idle_before_ms
    Pages young;              ///< pages that may go from any slab; counts against the budget
    Pages fall;               ///< pages that go from any slab, because use fell
    uint32_t idle_before_ms;  ///< slabs into which the last free was before this time are old
  };

  /// `running_ms`: the running time of all threads of the process since its start; 0 = not known,
  /// or no more than the time since the last decision.
  [[nodiscard]] Decision decide(uint64_t now_ms, Pages used, Pages dirty, uint64_t running_ms = 0);

  /// Whether `now_ms` is later than the last decision.
  [[nodiscard]] bool is_later(uint64_t now_ms) const { return now_ms != last_ms_; }
  /// Whether no call came for kSoonMs, the time for which a page must lie idle. All pages that
  /// became idle meanwhile are then due at once.
  [[nodiscard]] bool ends_silence(uint64_t now_ms) const { return now_ms - last_ms_ >= kSoonMs; }

  /// Pages that were purged against the budget.
  void spend(Pages young) { spent_ += static_cast<int64_t>(young.count); }

  /// Pages that were purged because use fell.
  void give_back(Pages gone) { use_.give_back(gone.count); }

  /// Whether decide() may find that pages go because use fell: always, if they do.
  [[nodiscard]] bool may_fall(Pages dirty) const { return dirty > quiet_ && dirty > kFallFloor; }
  /// Pages of those in use that hold no memory: a fall's bound does not count them.
  void note_hollow(Pages hollow) { hollow_ = hollow; }
  /// Whether a fall gives nothing back from now on: for tests of what else does.
  void keep_falls(bool on) {
    keeps_falls_ = on;
    quiet_ = Pages(on ? ~size_t{0} : 0);
  }

  /// Records use between decisions, so that short peaks count.
  void observe(Pages used) {
    if (used > peak_) peak_ = used;
    if (used.count > peaks_[slot_]) peaks_[slot_] = used.count;
    if (used.count > use_.use()) note_rise(used.count);
  }

  /// How far use fell and rose again lately.
  [[nodiscard]] Pages returns() const { return Pages(came_back_.most()); }
  /// Pages that came back after a silence. They may do so again.
  [[nodiscard]] Pages slow_returns(Pages used) const {
    const Pages known = recent_peak(), slow(came_back_slowly_.most());
    const Pages most = known > used ? known - used : Pages(0);
    return slow < most ? slow : most;
  }
  /// Milliseconds until the heap is silent, if no call comes.
  [[nodiscard]] uint64_t to_silence_ms(uint64_t now_ms) const {
    const uint64_t passed = now_ms - last_ms_;
    return passed < kSilenceMs ? kSilenceMs - passed : 0;
  }

  /// A fall by this much gives nothing back.
  [[nodiscard]] Pages worth_waiting_for() const {
    return keeps_falls_ ? Pages(SIZE_MAX / kPageBytes) : returns();
  }

  /// The highest use so far.
  [[nodiscard]] Pages peak() const { return peak_; }

  /// The peak use of the last kHoldMs.
  [[nodiscard]] Pages recent_peak() const { return peak_of(kSlots); }
  /// The peak use of the last kSoonMs.
  [[nodiscard]] Pages latest_peak() const { return peak_of(kSoonMs / kSlotMs); }

 private:
  friend struct CounterFields;

  [[nodiscard]] Pages peak_of(unsigned slots) const;
  [[nodiscard]] size_t late_return() const;
  void end_slot(size_t used);
  void note_rise(size_t used);
  void note_slow_return(size_t used);
  [[nodiscard]] Pages decide_fall(Pages used, Pages dirty, Pages returns);

  Pages peak_{};
  uint64_t slot_began_ms_ = 0;
  uint64_t last_ms_ = 0;
  uint64_t last_running_ms_ = 0;
  int64_t spent_ =
      0;  // pages of kBudgetCap; may exceed it, because a purge ends at a run's end, not inside it
  size_t peaks_[kSlots] = {};
  // A round is one of all slots.
  RecentMost came_back_;
  RecentMost came_back_late_;
  RecentMost came_back_slowly_;
  // Around the last silence: the recent peak, and the use then.
  size_t before_silence_ = 0;
  size_t in_silence_ = 0;
  // As of the last decision.
  size_t last_peak_ = 0;
  size_t last_used_ = 0;
  unsigned slot_ = 0;
  FallenUse use_;
  Pages hollow_{};
  bool keeps_falls_ = false;
  Pages quiet_{};  // no look is worth its time while no more is dirty
};

}  // namespace loam
