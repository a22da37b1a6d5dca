// Large runs of the page heap that grow and shrink in place.
#include "os/charge.h"
#include "pages/page_heap.h"

namespace loam {

// Makes sure that pages of a slab of large runs are free in its bitmap, wherever they wait. False
// if one of them is not free.
bool PageHeap::clear_way(Slab* slab, unsigned first, unsigned count) {
  Region* const region = region_of(slab);
  Lock lock(shards_[slab->shard].mutex);
  bool joined = false;
  for (;;) {
    const unsigned taken = slab->free.find_clear(first);
    if (taken >= first + count) return true;
    // The page may be part of a parked run, of spans or of the slab's shard. Both locks are held.
    const uint32_t page = first_page_of(slab).index + taken;
    Span* behind = free_run_at(region, page, ParkedRuns::kSpansRuns);
    if (behind == nullptr) behind = free_run_at(region, page, 1u + slab->shard);
    if (behind == nullptr) {
      // Perhaps the run waits in a batch; after a join it is found as a parked run. Or a thread
      // keeps it, so the join is limited and done once. The kind of a small span belongs to its
      // bin, so it is not read here.
      const Span* whole =
          class_in(region, PageId(page)) == 0 ? span_in(region, PageId(page)) : nullptr;
      const bool may_wait = whole != nullptr && whole->run_kind() == SpanKind::kStanding;
      if (may_wait && !joined && join_standing(1u + slab->shard, kJoinedAtOnce)) {
        joined = true;
        continue;
      }
    }
    if (behind == nullptr) return false;
    parked(behind->list).take_out(behind);
    release_parked(behind);
  }
}

// Extends a run to the end of its last slab; and into the slabs behind that one only if the run
// begins where a slab begins. The reason: every run of no more pages than a slab has must lie in
// one slab.
bool PageHeap::extend(const Span* span, Pages more) {
  Region* const region = region_of(span);
  const size_t end = span->first_page + span->large.pages;
  Slab* const last = &region->slabs[(end - 1) / kPagesPerSlab];
  const auto offset = static_cast<unsigned>(end % kPagesPerSlab);
  const size_t room = offset == 0 ? 0 : kPagesPerSlab - offset;
  const auto here = static_cast<unsigned>(more.count < room ? more.count : room);
  const size_t left = more.count - here;
  if (left != 0) {
    if (span->first_page % kPagesPerSlab != 0) return false;
    // A move would also do this.
    release_parked();
    if (!space_.has_free(region, (end + here) / kPagesPerSlab, left, purges_)) return false;
  }
  if (here != 0 && !clear_way(last, offset, here)) return false;
  if (os::kChargesCommit &&
      !os::commit_again(region->page_address(PageId(static_cast<uint32_t>(end))), more.bytes()))
    return false;
  if (here != 0) {
    mark_used(last, offset, here);  // the bounds in the indexes stay upper bounds
  }
  use_slabs(last + 1, left, Taker{RunKind::kLarge, last->shard});
  used_ += more;
  note_peak();
  return true;
}

bool PageHeap::resize_large(Span* span, Pages pages, size_t requested) {
  Lock lock(mutex_);
  const Pages old(span->large.pages);
  const uint64_t fresh_before = fresh_.of_runs();
  if (pages < old) {
    clock_.read();
    fresh_.of_long_runs().note_free(span_base(span));  // the program has written all it wanted to
    release_pages(region_of(span), PageId(span->first_page) + pages, old - pages, 0,
                  clock_.now_ms());
  } else if (pages > old && !extend(span, pages - old)) {
    return false;
  }
  large_.resize(span, pages, requested);
  span->large.pages = pages.count;
  span->large.requested = requested;
  const Pages fresh(fresh_.of_runs() - fresh_before);
  if (pages > old && pages.count > kPagesPerSlab) note_growth(fresh, {span_base(span), pages});
  if (fresh != Pages(0)) bound_idle(fresh);
  // A short tail waits for the next free or tick.
  if (pages + PurgePolicy::kBatch < old) {
    count_operation();
  } else if (clock_.ends_count()) {
    tick_locked();
  }
  return true;
}

}  // namespace loam
