// The page heap's part in blocks that have a mapping of their own. When such a block grows, free
// memory goes back; mappings of freed blocks are kept for the next block.
#include "os/os.h"
#include "pages/page_heap.h"

namespace loam {

IdleMappings::Mapping PageHeap::take_mapping(Pages pages, size_t alignment, bool grows) {
  Lock lock(mutex_);
  clock_.read();
  return mappings_.idle().take(pages, alignment, clock_.now_ms(), grows);
}

Pages PageHeap::take_mapping_at(uintptr_t address, Pages most) {
  Lock lock(mutex_);
  clock_.read();
  return mappings_.idle().take_at(address, most, clock_.now_ms());
}

bool PageHeap::keeps_mappings(Pages wanted) {
  Lock lock(mutex_);
  clock_.read();
  return mappings_.idle().are_kept(wanted, clock_.now_ms());
}

void PageHeap::hand_over(Span* run, bool has_place) {
  Lock lock(mutex_);
  clock_.read();
  fresh_.of_long_runs().note_free(span_base(run));
  mappings_.add(Pages(run->large.pages));
  large_.remove(run);
  unpublish_large(run);
  run->heap = 0;
  if (LOAM_LIKELY(has_place)) release_large(run, clock_.now_ms(), FreeSlabs::kNoneBacked);
  count_operation();
}

void PageHeap::note_huge(GrowthDebt::Debtor before, GrowthDebt::Debtor now) {
  Lock lock(mutex_);
  mappings_.remove(before.pages);
  mappings_.add(now.pages);
  if (now.pages <= before.pages) return fresh_.of_long_runs().note_free(before.address);
  const Pages fresh = now.pages - before.pages;
  fresh_.take_mapping(now, fresh);
  note_growth(fresh, now);
}

bool PageHeap::keep_mapping(uintptr_t address, Pages pages) {
  Lock lock(mutex_);
  fresh_.of_long_runs().note_free(address);
  clock_.read();
  if (mappings_.idle().empty()) fresh_.forgive();
  const bool kept = mappings_.idle().keep(address, pages, clock_.now_ms());
  if (!kept) mappings_.remove(pages);
  fresh_.forget(address);
  // The program will write to the fresh pages of the newest block too. For example, that block is
  // the array of a vector that doubles, and this one is its old array, which was copied there.
  if (kept && fresh_.newest_fresh() != Pages(0)) {
    const Pages newest = fresh_.newest().pages;
    fresh_.limit_newest(newest > pages ? newest - pages : Pages(0));
    mappings_.shed(fresh_.newest_fresh(), purges_);  // at once, as a mapping that is not kept goes
  }
  if (!mappings_.idle().empty()) {
    hints_.set_pages_wait(true);
    shed_due_mappings();
  }
  hints_.set_idle_mappings(mappings_.idle().pages());
  return kept;
}

}  // namespace loam
