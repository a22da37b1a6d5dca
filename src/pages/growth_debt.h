// What the last long run made the heap's memory grow by, while memory that was freed lies idle: as
// much of that should go back.
//
//   backed    what the heap holds: what is used, what is free and backed, and blocks in mappings of their own
//   level     what it came up to, but for what is owed: never falls
//   owed      what the last long run took fresh beyond the level, and nobody has paid for since
//
// A run of several blocks of pages finds what was freed too short, or in pieces, and takes fresh
// memory beside it: a vector that doubles would leave its own size behind. So pages that are free
// go back for those that it takes: at once, and when what it took the place of is freed, for as
// many as it has not written to by then. A page that went raises the level by one, so that all that
// ever go are no more than the memory that the program comes up to: who goes on with the same sizes
// pays no more than one fault a page for this, in its life.
//
// Not thread-safe: the page heap's lock covers it.
#pragma once

#include "base/units.h"
#include "os/os.h"

namespace loam {

class GrowthDebt {
 public:
  /// A long run, or a block in a mapping of its own, by its address.
  struct Debtor {
    uintptr_t address = 0;  ///< 0: none
    Pages pages{};
  };

  /// A long run took so many pages that held nothing, which `backed` counts already.
  void take(Pages backed, Pages fresh, Debtor taker) {
    settle();  // who took before has most likely written to all of it by now
    if (backed - fresh > level_) level_ = backed - fresh;  // others grew, and may
    if (taker.pages < longest_) return;
    longest_ = taker.pages;
    if (backed <= level_) return;
    owed_ = backed - level_;
    debtor_ = taker;
  }

  /// A long run is freed. If it is the debtor it was in use, most likely: its pages are the
  /// program's level now.
  void note_free(uintptr_t address) {
    if (address == debtor_.address) settle();
  }

  /// So many of the debtor's pages hold nothing yet: for the others it is too late.
  void note_untouched(Pages pages) {
    if (pages >= owed_) return;
    level_ += owed_ - pages;
    owed_ = pages;
  }

  /// Pages that should go back now, if they are free.
  [[nodiscard]] Pages owed(Pages backed) const {
    const Pages over = backed > level_ ? backed - level_ : Pages(0);
    return over < owed_ ? over : owed_;
  }

  /// So many went.
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

/// Pages of a long run that are looked at to guess how many of it were written to. Chosen: what is
/// copied is written in order, so that a sixteenth is near enough; a look costs some 150 ns.
inline constexpr size_t kPagesLookedAt = 16;

/// How many of the debtor's pages hold nothing, about.
[[nodiscard]] inline Pages untouched_pages(GrowthDebt::Debtor debtor) {
  size_t untouched = 0;
  for (size_t i = 0; i < kPagesLookedAt; ++i) {
    const Pages before((2 * i + 1) * debtor.pages.count / (2 * kPagesLookedAt));
    untouched += !os::holds_memory(reinterpret_cast<const void*>(debtor.address + before.bytes()));
  }
  return Pages(debtor.pages.count * untouched / kPagesLookedAt);
}

}  // namespace loam
