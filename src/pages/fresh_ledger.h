// Counts the pages that the heap took fresh, and those for which kept memory must still go back.
//
//   taken()   pages of runs and own mappings that held no memory when they were taken; only grows
//   owed()    taken() - paid_: for this many of them no kept mapping has gone back yet
//   newest    the last block in a mapping of its own that took fresh pages, until it is freed
//
// Four kinds of kept free memory pay for fresh pages, which means that as much of it goes back.
// Kept mappings (idle_mappings.h) pay for all fresh pages, as counted here. Whole free blocks of
// pages pay for long runs (growth_debt.h). A thread's kept runs pay for the fresh pages of its own
// requests, which PageHeap::Run reports. Idle pages of slabs pay while they are more than the
// bound.
//
// Not thread-safe: the page heap's lock covers it.
#pragma once

#include "base/owned_counter.h"
#include "pages/growth_debt.h"
#include "pages/purge_policy.h"

namespace loam {

/// While a heap takes fresh pages, it holds at most its peak use, the half of it,
/// PurgePolicy::kFloor and a batch. Surplus pages of huge pages have a bound of their own. Measured
/// against a quarter and an eighth (decision 52): with a quarter, blocks of all doublings from
/// 16 B to 1 MiB have little more than half of their speed; a larger part leaves bursts of changing
/// sizes larger.
inline constexpr size_t kIdleShare = 2;

class FreshLedger {
 public:
  constexpr FreshLedger() = default;

  /// A run took `pages` fresh pages.
  LOAM_INLINE void take(unsigned pages) { count_up(runs_, pages); }
  /// The fresh pages of runs.
  [[nodiscard]] uint64_t of_runs() const { return runs_; }

  /// A block in a mapping of its own took `fresh` fresh pages.
  void take_mapping(GrowthDebt::Debtor block, Pages fresh) {
    mappings_ += fresh.count;
    newest_ = block;
    newest_fresh_ = fresh;
  }
  /// A block in a mapping of its own is freed.
  void forget(uintptr_t address) {
    if (newest_.address != address) return;
    newest_ = {};
    newest_fresh_ = Pages(0);
  }
  /// The last such block, and the fresh pages that it took.
  [[nodiscard]] GrowthDebt::Debtor newest() const { return newest_; }
  [[nodiscard]] Pages newest_fresh() const { return newest_fresh_; }
  /// Only `untouched` pages of the last block hold nothing yet: the program has written to the
  /// others.
  void limit_newest(Pages untouched) {
    if (newest_fresh_ > untouched) newest_fresh_ = untouched;
  }

  [[nodiscard]] uint64_t taken() const { return runs_ + mappings_; }
  /// Fresh pages for which no kept mapping has gone back yet.
  [[nodiscard]] Pages owed() const { return Pages(taken() - paid_); }
  /// `gone` pages went back. Pages beyond the owed ones count for nothing.
  void pay(Pages gone) { paid_ += (gone < owed() ? gone : owed()).count; }
  /// No mapping was kept that could have paid.
  void forgive() { paid_ = taken(); }

  [[nodiscard]] GrowthDebt& of_long_runs() { return long_runs_; }

  /// A run took `fresh` pages, and the heap, whose peak use is `peak`, now holds `held` pages in
  /// runs and free in slabs. Returns how many idle pages should go back because they are too many
  /// (kIdleShare): none, or at least a batch.
  [[nodiscard]] Pages beyond_bound(Pages fresh, Pages held, Pages peak) {
    const Pages bound = peak + Pages(peak.count / kIdleShare) + PurgePolicy::kFloor;
    const Pages over = held > bound ? held - bound : Pages(0);
    unpaid_ += fresh;
    if (unpaid_ > over) unpaid_ = over;
    if (unpaid_ < PurgePolicy::kBatch) return Pages(0);
    const Pages owed = unpaid_;
    unpaid_ = Pages(0);  // also if too few pages go: the next try comes with as many fresh pages
    return owed;
  }

 private:
  friend struct CounterFields;
  uint64_t runs_ = 0;  // owned_counter.h: the lock's holder writes
  uint64_t mappings_ = 0;
  uint64_t paid_ = 0;
  GrowthDebt::Debtor newest_{};
  Pages newest_fresh_{};
  GrowthDebt long_runs_;
  Pages unpaid_{};  // of runs, beyond the bound: no page went back for them yet
};

}  // namespace loam
