// The pages by which the last long run made the heap's memory grow while freed memory lies idle. As
// many idle pages should go back.
//
//   backed    the pages that the heap holds: used pages, free backed pages, and blocks in mappings
//             of their own
//   level     the highest `backed` so far, without `owed`; never falls
//   owed      the fresh pages of the last long run beyond the level, for which no page has gone
//             back since
//
// For a run of several slabs, freed runs are too short or in pieces, so it takes fresh
// memory beside them. A vector that doubles would leave its own size behind. So free pages go back
// in exchange for the fresh pages of such a run. They go back at once; and when the run that it
// replaces is freed, for as many pages as it is shorter. Each page that
// goes back raises the level by one, so the pages that ever go back are no more than the most
// memory that the program reaches. A program that continues with the same sizes pays at most one
// fault a page for this in its life.
//
// Not thread-safe: the page heap's lock covers it.
#pragma once

#include "base/units.h"

namespace loam {

class GrowthDebt {
 public:
  /// A long run, or a block in a mapping of its own, by its address.
  struct Debtor {
    uintptr_t address = 0;  ///< 0: none
    Pages pages{};
  };

  /// A long run took `fresh` pages that held nothing; `backed` counts them already.
  void take(Pages backed, Pages fresh, Debtor taker) {
    settle();  // the debtor before has most likely written to all of its pages by now
    if (backed - fresh > level_) level_ = backed - fresh;  // other growth is allowed
    if (taker.pages < longest_) return;
    longest_ = taker.pages;
    if (backed <= level_) return;
    owed_ = backed - level_;
    debtor_ = taker;
  }

  /// A long run is freed. If it is the debtor, it was most likely in use, so its pages belong to
  /// the program's level now.
  void note_free(uintptr_t address) {
    if (address == debtor_.address) settle();
  }

  /// The program freed a long run of `pages` pages. It most likely copied it into the debtor
  /// before, so it has written to as many pages of the debtor. For these it is too late.
  void note_copied(Pages copied) {
    const Pages pages = debtor_.pages > copied ? debtor_.pages - copied : Pages(0);
    if (pages >= owed_) return;
    level_ += owed_ - pages;
    owed_ = pages;
  }

  /// Pages that should go back now, if they are free.
  [[nodiscard]] Pages owed(Pages backed) const {
    const Pages over = backed > level_ ? backed - level_ : Pages(0);
    return over < owed_ ? over : owed_;
  }

  /// `pages` pages went back.
  void pay(Pages pages) {
    owed_ = pages < owed_ ? owed_ - pages : Pages(0);
    level_ += pages;
  }

  [[nodiscard]] Debtor debtor() const { return debtor_; }
  [[nodiscard]] Pages level() const { return level_; }

 private:
  void settle() {
    level_ += owed_;
    owed_ = Pages(0);
    debtor_ = Debtor{};
  }

  Pages level_{};
  Pages longest_{};
  Pages owed_{};
  Debtor debtor_{};
};

}  // namespace loam
