// Which slabs give pages back.
#include "os/charge.h"
#include "pages/free_slabs.h"

namespace loam {

namespace {

// A huge page in which pages were freed lately is split only to purge at least this many of its
// pages. Measured (decision 97): if any page were enough, a heap whose blocks come and go would
// have no huge pages left.
constexpr unsigned kWorthSplitting = kPagesPerSlab / 16;

// The most slabs that a tick passes by for that reason. Chosen: bounds the tick.
constexpr unsigned kHugeBlocksPerTick = 16;

bool is_worth_splitting(const Slab* slab) {
  return slab->dirty_pages >= kWorthSplitting || slab->free_pages == kPagesPerSlab;
}

}  // namespace

Pages FreeSlabs::purge(Slab* slab, Pages limit, PurgeCounts& counts, uint64_t now_ms) {
  const unsigned grain = static_cast<unsigned>(os::granularity() >> kPageShift);
  if (LOAM_UNLIKELY(slab->huge)) end_huge(slab, counts, now_ms);
  const PageBits dirty = dirty_bits(slab).copy();
  Region* const region = region_of(slab);
  char* const base = slab_base(slab);
  size_t done = 0;
  unsigned purged_to = 0;
  dirty.for_each_run([&](unsigned first, unsigned length) {
    if (done >= limit.count) return;
    // Only whole pages of the system can be purged. A page that the run covers in part is purged
    // too if the rest of it is free.
    unsigned begin = first / grain * grain;
    unsigned end = (first + length + grain - 1) / grain * grain;
    if (begin != first && slab->free.count_range(begin, first - begin) != first - begin)
      begin += grain;
    const unsigned past = first + length;
    if (end != past && slab->free.count_range(past, end - past) != end - past) end -= grain;
    if (begin < purged_to) begin = purged_to;
    if (begin >= end) return;
    const unsigned most = static_cast<unsigned>(limit.count - done + grain - 1) / grain * grain;
    if (end - begin > most) end = begin + most;
    if (!counts.discard(base + Pages(begin).bytes(), Pages(end - begin))) return;
    done += dirty.count_range(begin, end - begin);
    slab->backed.clear_range(begin, end - begin);
    purged_to = end;
  });
  slab->dirty_pages = static_cast<uint16_t>(slab->dirty_pages - done);
  dirty_pages_ -= Pages(done);
  counts.add(Pages(done));
  refresh_dirty(slab);
  if (slab->dirty_pages == 0) {
    age_.remove(slab);
    region->whole_backed.clear(region->number_of(slab));
  } else if (done < limit.count) {
    // The limit did not stop the purge, so the rest cannot be purged now: the system refused, or
    // the rest shares a page of the system with used memory. The slab goes to the end of the list,
    // so that a walk in this order meets the others first.
    age_.remove(slab);
    age_.push_back(slab);
  }
  return Pages(done);
}

FreeSlabs::Purged FreeSlabs::purge_oldest(const PurgePolicy::Decision& decision, size_t most,
                                          PurgeCounts& counts, uint64_t now_ms) {
  Purged gone;
  size_t idle = decision.idle.count;
  size_t young = decision.young.count;
  unsigned looks = kHugeBlocksPerTick;
  for (Slab* slab = age_.front(); slab != nullptr && gone.all < most;) {
    const bool old = static_cast<int32_t>(decision.idle_before_ms - slab->last_free_ms) > 0;
    size_t& allowed = old && idle != 0 ? idle : young;
    const size_t limit = allowed < most - gone.all ? allowed : most - gone.all;
    if (limit == 0) break;
    if (LOAM_UNLIKELY(slab->huge) && !old && !is_worth_splitting(slab)) {
      if (--looks == 0) break;
      slab = List<Slab, AgeList>::next(slab);
      continue;
    }
    const size_t done = purge(slab, Pages(limit), counts, now_ms).count;
    if (done == 0) break;  // refused: try again at a later tick
    if (&allowed == &young) gone.young += done;
    gone.all += done;
    allowed -= done < allowed ? done : allowed;
    slab = age_.front();
  }
  return gone;
}

void FreeSlabs::purge_all(PurgeCounts& counts, uint64_t now_ms) {
  // Slabs that keep some dirty pages go behind `last`, so one round meets every slab once.
  Slab* last = age_.back();
  for (bool more = last != nullptr; more;) {
    Slab* slab = age_.front();
    more = slab != last;
    purge(slab, Pages(kPagesPerSlab + 1), counts, now_ms);
  }
}

}  // namespace loam
