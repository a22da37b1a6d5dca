// What the heap took fresh, and who owes memory for it.
//
//   taken()   pages that held no memory when they were taken, of runs and of own mappings; only grows
//   owed()    taken() - paid_: for so many of them no kept mapping has gone yet
//   newest    the last block in a mapping of its own that took fresh pages, until it is freed
//
// Three keepers of free memory pay for fresh pages. Mappings that were kept (idle_mappings.h) pay
// for all of them, by the mark here. Whole free blocks of pages pay for long runs (growth_debt.h).
// A thread's kept runs pay for what its own requests took, which PageHeap::Run tells.
//
// Not thread-safe: the page heap's lock covers it.
#pragma once

#include "base/owned_counter.h"
#include "pages/growth_debt.h"

namespace loam {

class FreshLedger {
 public:
  constexpr FreshLedger() = default;

  /// A run took so many.
  LOAM_INLINE void take(unsigned pages) { count_up(runs_, pages); }
  /// Of runs.
  [[nodiscard]] uint64_t of_runs() const { return runs_; }

  /// A block in a mapping of its own took so many.
  void take_mapping(GrowthDebt::Debtor block, Pages fresh) {
    mappings_ += fresh.count;
    newest_ = block;
    newest_fresh_ = fresh;
  }
  /// Such a block is freed.
  void forget(uintptr_t address) {
    if (newest_.address != address) return;
    newest_ = {};
    newest_fresh_ = Pages(0);
  }
  /// The last one, and what it took.
  [[nodiscard]] GrowthDebt::Debtor newest() const { return newest_; }
  [[nodiscard]] Pages newest_fresh() const { return newest_fresh_; }
  /// So many pages of the last one hold nothing yet: it has written to the others.
  void limit_newest(Pages untouched) {
    if (newest_fresh_ > untouched) newest_fresh_ = untouched;
  }

  [[nodiscard]] uint64_t taken() const { return runs_ + mappings_; }
  /// For which nothing that is kept has gone.
  [[nodiscard]] Pages owed() const { return Pages(taken() - paid_); }
  /// So many pages went. More than are owed pay for nothing else.
  void pay(Pages gone) { paid_ += (gone < owed() ? gone : owed()).count; }
  /// Nothing was kept that could have paid.
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
