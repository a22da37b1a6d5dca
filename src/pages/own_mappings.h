// The pages of blocks in mappings of their own (huge_map.h), also of the mappings that are kept for
// the next such block.
//
//   pages()  = pages of live mappings + idle().pages()
//
// Lock: the page heap's.
#pragma once

#include "pages/fresh_ledger.h"
#include "pages/idle_mappings.h"
#include "pages/purge_counts.h"

namespace loam {

/// Runs up to this many pages live in regions; larger blocks have a mapping of their own
/// (huge_map.h). Chosen: 32 MiB; above it a mapping's cost vanishes and mremap() moves it without
/// copying.
inline constexpr Pages kMaxRun{8192};

/// The most pages that go back at once in mappings, or for the fresh pages of a long run. A buffer
/// that doubled up to the longest run leaves about as many behind. It bounds the pause, to some
/// 6 ms (decision 52).
inline constexpr Pages kMostPaid{2 * kMaxRun.count};

class OwnMappings {
 public:
  [[nodiscard]] Pages pages() const { return pages_; }
  void add(Pages pages) { pages_ += pages; }
  void remove(Pages pages) { pages_ -= pages; }
  [[nodiscard]] IdleMappings& idle() { return idle_; }
  [[nodiscard]] const IdleMappings& idle() const { return idle_; }

  /// Releases `pages` kept pages, rounded up to pages of the system.
  void shed(Pages pages, PurgeCounts& counts) {
    const auto grain = Pages::covering(os::granularity());
    while (pages != Pages(0) && !idle_.empty()) {
      const Pages most((pages.count + grain.count - 1) / grain.count * grain.count);
      const IdleMappings::Mapping gone = idle_.shed(most);
      os::release(reinterpret_cast<void*>(gone.address), gone.pages.bytes());
      pages_ -= gone.pages;
      counts.add(gone.pages);
      pages = gone.pages < pages ? pages - gone.pages : Pages(0);
    }
  }
  /// Releases the pages that are owed for fresh memory, or those that waited too long, whichever
  /// are more. `used`: pages in runs
  LOAM_NOINLINE void shed_due(FreshLedger& fresh, Pages used, uint64_t now_ms,
                              PurgeCounts& counts) {
    const Pages for_fresh = fresh.owed();
    const Pages due = idle_.due(used + pages_ - idle_.pages(), now_ms);
    Pages owed = for_fresh > due ? for_fresh : due;
    if (owed > kMostPaid) owed = kMostPaid;
    shed(owed, counts);
    fresh.pay(owed);  // the ledger still owes the rest
  }
  /// Releases all kept mappings; true if there was one.
  bool shed_all(PurgeCounts& counts) {
    if (idle_.empty()) return false;
    shed(idle_.pages(), counts);
    return true;
  }

 private:
  friend struct CounterFields;
  Pages pages_{};
  IdleMappings idle_;
};

}  // namespace loam
