// The page heap's purge: which slabs give pages back, a bounded number a tick.
#include "map/metadata.h"
#include "os/charge.h"
#include "pages/page_heap.h"

namespace loam {

namespace {

// The most pages that one tick purges. It bounds the pause of the call that runs the tick. 2,048
// pages take 0.3 to 0.8 ms. The bound grows with the waiting pages, so that a huge heap drains in
// seconds too.
constexpr size_t kPagesPerTick = 2048;

// The time between two searches for pages of free records. A region is searched only if more
// records than kFewRecords were ever handed out. Chosen: the time is the one after which idle pages
// go; fewer records take less than the floor that is always kept.
constexpr uint64_t kRecordsMs = PurgePolicy::kSoonMs;
constexpr uint32_t kFewRecords = PurgePolicy::kFloor.count * kPageBytes / sizeof(Span);
// The same for the maps: a number of slabs.
constexpr unsigned kFewBlocks = kSlabsPerRegion / 8;
// The same for idle pages of the heap's other metadata: a number of bytes.
constexpr size_t kFewPieces = PurgePolicy::kFloor.bytes();

// The most pages that go back at once for the fresh pages of a long run. A buffer that doubled up
// to the longest run leaves about as many behind. Bounds the pause, to some 6 ms.
constexpr Pages kMostPaid{2 * kMaxRun.count};

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

Pages PageHeap::purge_slab(Slab* slab, Pages limit) {
  const unsigned grain = static_cast<unsigned>(os::granularity() >> kPageShift);
  if (LOAM_UNLIKELY(slab->huge)) end_huge(slab);
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
    if (!purges_.discard(base + Pages(begin).bytes(), Pages(end - begin))) return;
    done += dirty.count_range(begin, end - begin);
    slab->backed.clear_range(begin, end - begin);
    purged_to = end;
  });
  slab->dirty_pages = static_cast<uint16_t>(slab->dirty_pages - done);
  dirty_pages_ -= Pages(done);
  purges_.add(Pages(done));
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

void PageHeap::note_growth(Pages fresh, GrowthDebt::Debtor taker) {
  if (fresh == Pages(0)) return;
  if (!mappings_.idle().empty()) shed_due_mappings();
  fresh_.of_long_runs().take(backed(), fresh, taker);
  pay_growth(fresh_.of_long_runs().owed(backed()));
}

void PageHeap::pay_after_long_free() {
  if (fresh_.of_long_runs().owed(backed()) < PurgePolicy::kBatch) return;
  fresh_.of_long_runs().note_untouched(untouched_pages(fresh_.of_long_runs().debtor()));
  pay_growth(fresh_.of_long_runs().owed(backed()));
}

// Purges only whole slabs, because long runs leave these, and few calls purge them. Small blocks
// soon use the free pages beside live blocks.
void PageHeap::pay_growth(Pages owed) {
  if (owed < PurgePolicy::kBatch || dirty_pages_ < PurgePolicy::kBatch) return;
  if (owed > kMostPaid) owed = kMostPaid;
  for (Region* region = space_.first_region(); region != nullptr; region = region->next) {
    unsigned b = region->whole_backed.find_set(0);
    for (; b < kSlabsPerRegion && owed != Pages(0); b = region->whole_backed.find_set(b + 1)) {
      const Pages gone = purge_slab(&region->slabs[b], owed);
      fresh_.of_long_runs().pay(gone);
      owed = gone < owed ? owed - gone : Pages(0);
    }
  }
}

void PageHeap::bound_idle(Pages fresh) {
  Pages owed = fresh_.beyond_bound(fresh, used_ + parked_pages_ + dirty_pages_, policy_.peak());
  if (owed == Pages(0)) return;
  if (owed > kMostPaid) owed = kMostPaid;
  // No slab counts as old. The front's time would not do, as the list of ages is only nearly
  // sorted.
  constexpr uint32_t kLongAgo = uint32_t{1} << 30;
  purge_oldest({Pages(0), owed, static_cast<uint32_t>(clock_.now_ms()) - kLongAgo}, owed.count);
}

PageHeap::Purged PageHeap::purge_oldest(const PurgePolicy::Decision& decision, size_t most) {
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
    const size_t done = purge_slab(slab, Pages(limit)).count;
    if (done == 0) break;  // refused: try again at a later tick
    if (&allowed == &young) gone.young += done;
    gone.all += done;
    allowed -= done < allowed ? done : allowed;
    slab = age_.front();
  }
  return gone;
}

// Surplus pages beyond the number of fresh pages taken since the last look will not be needed soon.
void PageHeap::shed_surplus() {
  if (!clock_.is_due(PageClock::kSurplus, PurgePolicy::kSoonMs)) return;
  clock_.note(PageClock::kSurplus);
  end_huge_pages(huge_.needed_soon(fresh_.of_runs()));
}

void PageHeap::tick_locked() {
  clock_.read();
  if (LOAM_UNLIKELY(policy_.ends_silence(clock_.now_ms()))) hints_.set_behind(true);
  const Pages parked_before = parked_pages_;
  release_old_parked();
  if (LOAM_UNLIKELY(!mappings_.idle().empty())) shed_due_mappings();
  const Pages used = note_peak();
  const Pages elsewhere = dirty_pages_ + parked_pages_;
  const Pages waiting = elsewhere + (used_ - used);
  const bool may_purge = waiting + huge_.pages() > PurgePolicy::kFloor;
  // This is a system call, so it is made once in a step of the coarse clock, and only if there are
  // several threads.
  const uint64_t running_ms =
      may_purge && policy_.is_later(clock_.now_ms()) && !os::is_single_threaded() ? os::running_ms()
                                                                                  : 0;
  const PurgePolicy::Decision decision = policy_.decide(clock_.now_ms(), used, waiting, running_ms);
  hints_.set_waiting(elsewhere);
  hints_.set_pages_wait(may_purge || !mappings_.idle().empty());
  hints_.set_used(used);
  if (may_purge && clock_.is_due(PageClock::kRecords, kRecordsMs)) {
    // If more is left than one tick may purge, the next tick continues.
    constexpr size_t kMost = Pages(kPagesPerTick).bytes();
    const bool records_remain = space_.purge_records(kFewRecords, kMost) >= kMost;
    static_cast<void>(space_.purge_maps(kFewBlocks));
    const bool pieces_remain =
        metadata.idle_bytes() >= kFewPieces && metadata.purge(kMost) >= kMost;
    if (!records_remain && !pieces_remain) clock_.note(PageClock::kRecords);
  }
  if (LOAM_UNLIKELY(huge_.pages() != Pages(0))) shed_surplus();
  const size_t most = kPagesPerTick + decision.idle.count / 64;
  const Purged gone = purge_oldest(decision, most);
  policy_.spend(Pages(gone.young));
  // The heap has caught up with the ticks that a clock would have made: this tick did not reach its
  // bound, and joined no parked run of spans.
  if (LOAM_UNLIKELY(hints_.is_behind()) && gone.all < most && parked_pages_ == parked_before)
    hints_.set_behind(false);
  // This is the last tick for now, and there may be no further call.
  if (may_purge && dirty_pages_ + huge_.pages() + parked_pages_ <= PurgePolicy::kFloor)
    static_cast<void>(space_.purge_maps(kFewBlocks));
}

size_t PageHeap::purge_records() {
  Lock lock(mutex_);
  return space_.purge_records(0, SIZE_MAX) + space_.purge_maps(1);
}

void PageHeap::tick() {
  Lock lock(mutex_);
  tick_locked();
}

void PageHeap::tick_unless_busy() {
  if (!mutex_.try_lock()) return;
  tick_locked();
  mutex_.unlock();
}

Pages PageHeap::purge_all() {
  Lock lock(mutex_);
  release_parked();
  const uint64_t purged_before = purges_.pages();
  mappings_.shed_all(purges_);
  end_huge_pages(Pages(0));
  // Slabs that keep some dirty pages go behind `last`, so one round meets every slab once.
  Slab* last = age_.back();
  for (bool more = last != nullptr; more;) {
    Slab* slab = age_.front();
    more = slab != last;
    purge_slab(slab, Pages(kPagesPerSlab + 1));
  }
  if (!os::is_reserving()) unmap_ends(0);
  hints_.set_waiting(dirty_pages_ + parked_pages_);
  hints_.set_pages_wait(dirty_pages_ > PurgePolicy::kFloor);
  return Pages(purges_.pages() - purged_before);
}

}  // namespace loam
