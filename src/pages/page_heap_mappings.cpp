// The page heap's part in blocks that have a mapping of their own. When such a block grows, free
// memory goes back; mappings of freed blocks are kept for the next block.
#include "os/os.h"
#include "pages/page_heap.h"

namespace loam {

namespace {

// The most pages that go back in one tick. Chosen: bounds the pause, to some 6 ms.
constexpr Pages kShedPerTick{2 * kMaxRun.count};

}  // namespace

IdleMappings::Mapping PageHeap::take_mapping(Pages pages, size_t alignment, bool grows) {
  Lock lock(mutex_);
  now_ms_ = os::now_coarse_ms();
  return idle_.take(pages, alignment, now_ms_, grows);
}

Pages PageHeap::take_mapping_at(uintptr_t address, Pages most) {
  Lock lock(mutex_);
  now_ms_ = os::now_coarse_ms();
  return idle_.take_at(address, most, now_ms_);
}

bool PageHeap::keeps_mappings(Pages wanted) {
  Lock lock(mutex_);
  now_ms_ = os::now_coarse_ms();
  return idle_.are_kept(wanted, now_ms_);
}

void PageHeap::hand_over(Span* run) {
  Lock lock(mutex_);
  now_ms_ = os::now_coarse_ms();
  growth_.note_free(span_base(run));
  huge_pages_ += Pages(run->large.pages);
  uncount_large(run);
  unpublish_large(run);
  run->heap = 0;
  release_large(run, now_ms_, kNoneBacked);
  count_operation();
}

void PageHeap::note_huge(GrowthDebt::Debtor before, GrowthDebt::Debtor now) {
  Lock lock(mutex_);
  huge_pages_ = huge_pages_ - before.pages + now.pages;
  if (now.pages <= before.pages) return growth_.note_free(before.address);
  const Pages fresh = now.pages - before.pages;
  fresh_.take_mapping(now, fresh);
  note_growth(fresh, now);
}

bool PageHeap::keep_mapping(uintptr_t address, Pages pages) {
  Lock lock(mutex_);
  growth_.note_free(address);
  now_ms_ = os::now_coarse_ms();
  if (idle_.empty()) fresh_.forgive();
  const bool kept = idle_.keep(address, pages, now_ms_);
  if (!kept) huge_pages_ -= pages;
  fresh_.forget(address);
  // The program will write to the fresh pages of the newest block too. For example, that block is
  // the array of a vector that doubles, and this one is its old array.
  if (kept && fresh_.newest_fresh() != Pages(0)) {
    fresh_.limit_newest(untouched_pages(fresh_.newest()));
    shed_mappings(fresh_.newest_fresh());  // at once, as a mapping that is not kept goes
  }
  if (!idle_.empty()) {
    pages_wait_.store(true, std::memory_order_relaxed);
    shed_due_mappings();
  }
  return kept;
}

void PageHeap::shed_mappings(Pages pages) {
  const auto grain = Pages::covering(os::granularity());
  while (pages != Pages(0) && !idle_.empty()) {
    const Pages most((pages.count + grain.count - 1) / grain.count * grain.count);
    const IdleMappings::Mapping gone = idle_.shed(most);
    os::release(reinterpret_cast<void*>(gone.address), gone.pages.bytes());
    huge_pages_ -= gone.pages;
    purged_pages_ += gone.pages.count;
    pages = gone.pages < pages ? pages - gone.pages : Pages(0);
  }
}

// Releases the pages that are owed for fresh memory, or those that waited too long, whichever are
// more.
void PageHeap::shed_due_mappings() {
  const Pages for_fresh = fresh_.owed();
  const Pages due = idle_.due(used_ + huge_pages_ - idle_.pages(), now_ms_);
  Pages owed = for_fresh > due ? for_fresh : due;
  if (owed > kShedPerTick) owed = kShedPerTick;
  shed_mappings(owed);
  fresh_.pay(owed);  // the ledger still owes the rest
}

bool PageHeap::shed_all_mappings() {
  if (idle_.empty()) return false;
  shed_mappings(idle_.pages());
  return true;
}

}  // namespace loam
