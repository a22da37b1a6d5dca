// Counts the pages that the heap took fresh, and those for which kept memory must still go back.
//
//   taken()   pages of runs and of own mappings that held no memory when they were taken; only grows
//   owed()    taken() - paid_: for this many of them no kept mapping has gone back yet
//   newest    the last block in a mapping of its own that took fresh pages, until it is freed
//
// Three kinds of kept free memory pay for fresh pages, which means that as much of it goes back.
// Kept mappings (idle_mappings.h) pay for all fresh pages, as counted here. Whole free blocks of
// pages pay for long runs (growth_debt.h). A thread's kept runs pay for the fresh pages of its own
// requests, which PageHeap::Run reports.
//
// Not thread-safe: the page heap's lock covers it.
#pragma once

#include "base/owned_counter.h"
#include "pages/growth_debt.h"

namespace loam {

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

 private:
  friend struct CounterFields;
  uint64_t runs_ = 0;  // owned_counter.h: the lock's holder writes
  uint64_t mappings_ = 0;
  uint64_t paid_ = 0;
  GrowthDebt::Debtor newest_{};
  Pages newest_fresh_{};
};

}  // namespace loam
