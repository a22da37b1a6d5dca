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

// A region is searched for pages of free records only if more records than this were ever handed
// out: fewer take less than the floor that is always kept.
constexpr uint32_t kFewRecords = PurgePolicy::kFloor.count * kPageBytes / sizeof(Span);
// The same for the maps: a number of slabs.
constexpr unsigned kFewBlocks = kSlabsPerRegion / 8;
// The same for idle pages of the heap's other metadata: a number of bytes.
constexpr size_t kFewPieces = PurgePolicy::kFloor.bytes();

}  // namespace

void PageHeap::note_growth(Pages fresh, GrowthDebt::Debtor taker) {
  if (fresh == Pages(0)) return;
  if (!mappings_.idle().empty()) shed_due_mappings();
  GrowthDebt& debt = fresh_.of_long_runs();
  debt.take(backed(), fresh, taker);
  pay_growth(debt.owed(backed()));
}

void PageHeap::pay_after_long_free(Pages freed) {
  GrowthDebt& debt = fresh_.of_long_runs();
  if (debt.owed(backed()) < PurgePolicy::kBatch) return;
  debt.note_copied(freed);
  pay_growth(debt.owed(backed()));
}

// Purges only whole slabs, because long runs leave these, and few calls purge them. Small blocks
// soon use the free pages beside live blocks.
void PageHeap::pay_growth(Pages owed) {
  if (owed < PurgePolicy::kBatch || slabs_.dirty() < PurgePolicy::kBatch) return;
  if (owed > kMostPaid) owed = kMostPaid;
  for (Region* region = space_.first_region(); region != nullptr; region = region->next) {
    unsigned b = region->whole_backed.find_set(0);
    for (; b < kSlabsPerRegion && owed != Pages(0); b = region->whole_backed.find_set(b + 1)) {
      const Pages gone = slabs_.purge(&region->slabs[b], owed, purges_, clock_.now_ms());
      fresh_.of_long_runs().pay(gone);
      owed = gone < owed ? owed - gone : Pages(0);
    }
  }
}

// There may be no call after a fall. So all of it goes at once, also what is parked; each page goes
// at most once in a fall.
void PageHeap::give_back_fall(Pages pages) {
  release_parked();
  const Pages gone = purge_oldest_of_any_age(pages);
  policy_.give_back(gone);
}

Pages PageHeap::purge_oldest_of_any_age(Pages pages) {
  // No slab counts as old. The front's time would not do, as the list of ages is only nearly
  // sorted.
  constexpr uint32_t kLongAgo = uint32_t{1} << 30;
  const auto before_ms = static_cast<uint32_t>(clock_.now_ms()) - kLongAgo;
  return Pages(
      slabs_
          .purge_oldest(
              {.idle = Pages(0), .young = pages, .fall = Pages(0), .idle_before_ms = before_ms},
              pages.count, purges_, clock_.now_ms())
          .all);
}

void PageHeap::bound_idle(Pages fresh) {
  Pages owed = fresh_.beyond_bound(fresh, used_ + standing_spans_.waiting() + slabs_.dirty(),
                                   policy_.peak());
  if (owed == Pages(0)) return;
  if (owed > kMostPaid) owed = kMostPaid;
  static_cast<void>(purge_oldest_of_any_age(owed));
}

// Surplus pages beyond the number of fresh pages taken since the last look will not be needed soon.
void PageHeap::shed_surplus() {
  if (!clock_.is_due(PageClock::kSurplus, PurgePolicy::kSoonMs)) return;
  clock_.note(PageClock::kSurplus);
  end_huge_pages(slabs_.surplus().needed_soon(fresh_.of_runs()));
}

void PageHeap::tick_locked() {
  clock_.read();
  if (LOAM_UNLIKELY(policy_.ends_silence(clock_.now_ms()))) hints_.set_behind(true);
  const Pages parked_before = standing_spans_.waiting();
  release_old_parked();
  if (LOAM_UNLIKELY(!mappings_.idle().empty())) shed_due_mappings();
  const Pages used = note_peak();
  const Pages elsewhere = slabs_.dirty() + standing_spans_.waiting();
  const Pages waiting = elsewhere + (used_ - used);
  const bool may_purge = waiting + slabs_.surplus().pages() > PurgePolicy::kFloor;
  // This is a system call, so it is made once in a step of the coarse clock, and only if there are
  // several threads.
  const uint64_t running_ms =
      may_purge && policy_.is_later(clock_.now_ms()) && !os::is_single_threaded() ? os::running_ms()
                                                                                  : 0;
  policy_.note_hollow(hints_.hollow() + hints_.hollow_in_heaps());
  const PurgePolicy::Decision decision = policy_.decide(clock_.now_ms(), used, waiting, running_ms);
  hints_.set_looked(clock_.now_ms());
  hints_.set_waiting(elsewhere);
  hints_.set_pages_wait(may_purge || !mappings_.idle().empty());
  hints_.set_idle_mappings(mappings_.idle().pages());
  hints_.set_used(used);
  hints_.set_returned(policy_.worth_waiting_for());
  if (may_purge && clock_.is_due(PageClock::kRecords, PurgePolicy::kSoonMs)) {
    // If more is left than one tick may purge, the next tick continues.
    constexpr size_t kMost = Pages(kPagesPerTick).bytes();
    const bool records_remain = space_.purge_records(kFewRecords, kMost) >= kMost;
    static_cast<void>(space_.purge_maps(kFewBlocks));
    const bool pieces_remain =
        metadata.idle_bytes() >= kFewPieces && metadata.purge(kMost) >= kMost;
    if (!records_remain && !pieces_remain) clock_.note(PageClock::kRecords);
  }
  if (LOAM_UNLIKELY(slabs_.surplus().pages() != Pages(0))) shed_surplus();
  const size_t most = kPagesPerTick + decision.idle.count / 64;
  if (LOAM_UNLIKELY(decision.fall != Pages(0))) give_back_fall(decision.fall);
  const FreeSlabs::Purged gone = slabs_.purge_oldest(decision, most, purges_, clock_.now_ms());
  policy_.spend(Pages(gone.young));
  // The heap has caught up with the ticks that a clock would have made: this tick did not reach its
  // bound, and joined no parked run of spans.
  if (LOAM_UNLIKELY(hints_.is_behind()) && gone.all < most &&
      standing_spans_.waiting() == parked_before)
    hints_.set_behind(false);
  // This is the last tick for now, and there may be no further call.
  if (may_purge &&
      slabs_.dirty() + slabs_.surplus().pages() + standing_spans_.waiting() <= PurgePolicy::kFloor)
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

bool PageHeap::much_waits() const {
  if (LOAM_LIKELY(!hints_.wants_ticks() && hints_.held_in_heaps() == Pages(0))) return false;
  const Pages pages =
      hints_.waiting() + pages_in_shards() + hints_.idle_mappings() + hints_.held_in_heaps();
  return pages.bytes() + hints_.held_in_spans() >
         kMuch + hints_.used_bytes() / (PurgePolicy::kFallShare / 2);
}

PageHeap::Silence PageHeap::look_at_silence() {
  Lock lock(mutex_);
  clock_.read();
  const uint64_t left_ms = policy_.to_silence_ms(clock_.now_ms());
  if (left_ms != 0) return {left_ms, Pages(0)};
  tick_locked();
  return {0, policy_.slow_returns(really_used())};
}

void PageHeap::give_back_beyond(Pages keep, const GoOn& go_on) {
  {
    Lock lock(mutex_);
    clock_.read();
    release_parked();
    if (keep == Pages(0)) {
      mappings_.shed_all(purges_);
      end_huge_pages(Pages(0));
    }
  }
  keep += PurgePolicy::kFloor;
  // Each piece is as long as a tick, so that a thread that comes back need not wait for all.
  for (bool more = true; more && go_on();) {
    Lock lock(mutex_);
    const Pages dirty = slabs_.dirty();
    Pages piece = dirty > keep ? dirty - keep : Pages(0);
    if (piece.count > kPagesPerTick) piece = Pages(kPagesPerTick);
    const Pages gone = piece == Pages(0) ? piece : purge_oldest_of_any_age(piece);
    policy_.give_back(gone);
    more = gone != Pages(0);
    note_what_waits();
    if (!more) hints_.set_behind(false);
  }
}

void PageHeap::note_what_waits() {
  hints_.set_waiting(slabs_.dirty() + standing_spans_.waiting());
  hints_.set_pages_wait(slabs_.dirty() > PurgePolicy::kFloor);
  hints_.set_idle_mappings(mappings_.idle().pages());
}

Pages PageHeap::purge_all() {
  Lock lock(mutex_);
  release_parked();
  const uint64_t purged_before = purges_.pages();
  mappings_.shed_all(purges_);
  end_huge_pages(Pages(0));
  slabs_.purge_all(purges_, clock_.now_ms());
  if (!os::is_reserving()) unmap_ends(0);
  note_what_waits();
  return Pages(purges_.pages() - purged_before);
}

}  // namespace loam
