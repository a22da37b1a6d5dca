// Takes a large run from a shard of the page heap (page_shard.h), and parks one:
// PageHeap::take_run() and give_run(). They are inline in the cache of runs, because they are most
// of the work of a pair of malloc and free of a large block.
//
// Lock: each function takes its shard's.
#pragma once

#include "pages/page_heap.h"

namespace loam {

// How many runs are parked in a shard between two looks at the clock. A look costs a fifth of the
// time of parking. Runs parked meanwhile may seem older than they are. They seem much older only in
// a program that frees so few runs that nothing is lost.
inline constexpr uint32_t kParkedPerLook = kOperationsPerTick / 4;

LOAM_INLINE PageHeap::Cut PageHeap::take_parked(unsigned shard, unsigned count, unsigned more,
                                                Span** out) {
  if (shard >= kPageShards)
    __builtin_unreachable();  // so the compiler knows that these are no spans' runs, and drops a
                              // test
  const Cut result = cut_parked(1 + shard, count, more, out);
  if (LOAM_LIKELY(result == Cut::kDone)) {
    PageShard& from = *one_address(&shards_[shard]);
    (*out)->kind = SpanKind::kLarge;
    set_parked(from, from.parked_pages - (*out)->large.pages);
  }
  return result;
}

LOAM_INLINE PageHeap::Runs PageHeap::take_run(Pages pages, unsigned more, unsigned own, Pages room,
                                              unsigned most) {
  if (LOAM_UNLIKELY(pages.count > kPagesPerSlab)) return {};
  const unsigned count = static_cast<unsigned>(pages.count);
  PageShard& shard = *one_address(&shards_[own]);
  // relaxed: a hint
  if (__atomic_load_n(&shard.asked, __ATOMIC_RELAXED) != count)
    __atomic_store_n(&shard.asked, count, __ATOMIC_RELAXED);
  Cut result = Cut::kNothing;
  // relaxed: a run that is parked a moment later is missed
  if (LOAM_LIKELY(__atomic_load_n(&shard.parked_pages, __ATOMIC_RELAXED) >= count)) {
    Span* span = nullptr;
    shard.mutex.lock();
    Span* const batch = shard.standing.newest();
    if (const unsigned runs = batch != nullptr ? static_cast<unsigned>(batch->standing.runs) : ~0u;
        runs - 1 <= most && batch->standing.pages == count &&
        (runs - 1) * uint64_t{count} <= room.count) {
      shard.standing.pop_newest(batch);
      set_parked(shard, shard.parked_pages - runs * uint64_t{count});
      shard.mutex.unlock();
      batch->set_run_kind(SpanKind::kLarge);
      return {batch, batch->standing.rest, runs - 1};
    }
    result = LOAM_UNLIKELY(batch != nullptr) ? take_beside_standing(own, count, more, &span)
                                             : take_parked(own, count, more, &span);
    shard.mutex.unlock();
    if (LOAM_LIKELY(result == Cut::kDone)) return {span};
    if (result == Cut::kCloserElsewhere) return {};
  }
  return {take_run_anywhere(count, more, own, result == Cut::kNoRecord)};
}

LOAM_INLINE void PageHeap::park_in(unsigned s, Span* span, uint64_t since_ms) {
  PageShard& shard = *one_address(&shards_[s]);
  set_parked(shard, shard.parked_pages + span->large.pages);
  one_address(&parked(1 + s))->push(span, 1 + s, since_ms);
}

LOAM_INLINE void PageHeap::give_run(Span* span) {
  unpublish_large(span);
  for (;;) {
    const unsigned s = shard_of(span);
    PageShard& shard = *one_address(&shards_[s]);
    shard.mutex.lock();
    if (LOAM_UNLIKELY(shard_of(span) != s)) {  // its slab has just moved
      shard.mutex.unlock();
      continue;
    }
    const uint32_t pushes = shard.pushes;
    __atomic_store_n(&shard.pushes, pushes + 1, __ATOMIC_RELAXED);
    if (LOAM_UNLIKELY(pushes % kParkedPerLook == 0)) look_at_clock(shard);
    park_in(s, span, shard.now_ms);
    shard.mutex.unlock();
    break;
  }
  note_parked();
}

}  // namespace loam
