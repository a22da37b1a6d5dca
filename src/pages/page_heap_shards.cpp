// The page heap's shards: freed large runs are taken and parked without the page heap's own lock.
#include "os/os.h"
#include "pages/shard_runs.h"

namespace loam {

namespace {

// The records that a shard gets at once for its cuts, and the most that it may keep after a look at
// old runs. Chosen: a cut takes one record and a join gives one back, so few suffice. Each further
// record takes 64 bytes in the region's header.
constexpr uint32_t kSparesAtOnce = 16;
constexpr uint32_t kMostSpares = 4 * kSparesAtOnce;

// The runs that must be parked in a shard before its runs are reserved for its threads. Chosen: a
// thread that frees a thousand large blocks is likely to continue. Fewer would keep memory from
// other threads without a gain.
constexpr uint32_t kParkedWhenBusy = 1024;

// After the threads of a shard have taken this many runs from other shards, the slab of the last
// run moves to their shard. Chosen: a move costs some microseconds and the page heap's lock. A run
// from another shard costs a lock that the threads of that shard may hold.
constexpr uint32_t kTakenPerMove = 16;

}  // namespace

unsigned PageHeap::join_shard() {
  // The shard with the fewest threads is chosen, so that threads that live one after another use
  // the same shard.
  for (;;) {
    unsigned best = 0;
    uint32_t fewest = ~uint32_t{0};
    for (unsigned s = 0; s < kPageShards; ++s) {
      // relaxed: the exchange below sees threads that joined meanwhile
      const uint32_t threads = shards_[s].threads.load(std::memory_order_relaxed);
      if (threads >= fewest) continue;
      best = s;
      fewest = threads;
    }
    // Threads that start at once must not choose the same shard. They would contend for its lock as
    // long as they live.
    if (!shards_[best].threads.compare_exchange_strong(fewest, fewest + 1,
                                                       std::memory_order_relaxed))
      continue;
    hints_.use_shard(best);
    return best;
  }
}

void PageHeap::leave_shard(unsigned shard) {
  shards_[shard].threads.fetch_sub(1, std::memory_order_relaxed);
}

bool PageHeap::is_any_locked() const {
  bool any = mutex_.is_locked();
  for (const PageShard& shard : shards_) any |= shard.mutex.is_locked();
  return any;
}

Pages PageHeap::pages_in_shards() const {
  Pages sum{};
  const unsigned count = hints_.shards_in_use();
  for (unsigned s = 0; s < count; ++s)
    sum += Pages(__atomic_load_n(&shards_[s].parked_pages, __ATOMIC_RELAXED));
  return sum;
}

// Takes a run of another shard rather than unbacked memory. The thread's own shard comes first if
// it was not searched yet, or if it lacked only a record.
Span* PageHeap::take_run_anywhere(unsigned count, unsigned more, unsigned own, bool own_too) {
  const unsigned shards = hints_.shards_in_use();
  for (unsigned i = own_too ? 0 : 1; i < shards; ++i) {
    const unsigned s = (own + i) % shards;
    PageShard& shard = shards_[s];
    if (__atomic_load_n(&shard.parked_pages, __ATOMIC_RELAXED) < count) continue;
    if (s != own && is_reserved(shard)) continue;
    Span* span = nullptr;
    Cut result = Cut::kNoRecord;
    for (int attempt = 0; attempt < 2 && result == Cut::kNoRecord; ++attempt) {
      if (attempt == 1) stock_records(s);
      Lock lock(shard.mutex);
      result = LOAM_UNLIKELY(!shard.standing.empty()) ? take_beside_standing(s, count, more, &span)
                                                      : take_parked(s, count, more, &span);
    }
    if (result == Cut::kDone) {
      if (s != own) count_taken_elsewhere(own, span);
      return span;
    }
    if (result == Cut::kCloserElsewhere) return nullptr;
  }
  return nullptr;
}

// A run returns to its slab's shard when it is freed. So a thread that keeps taking runs from
// other shards would contend with their threads at every free. Examples are threads that began
// together, and a thread that follows one that had all slabs.
void PageHeap::count_taken_elsewhere(unsigned own, const Span* span) {
  // relaxed: if two threads of a shard count at once, one count may be lost
  std::atomic<uint32_t>& count = shards_[own].taken_elsewhere;
  const uint32_t taken = count.load(std::memory_order_relaxed) + 1;
  count.store(taken, std::memory_order_relaxed);
  if (taken % kTakenPerMove == 0)
    move_slab(&region_of(span)->slabs[span->first_page / kPagesPerSlab], own);
}

// Moves the slab, with its parked runs, to the shard `to`. It holds both shards' locks and the
// page heap's, so a thread that holds any of them can rely on a slab's shard.
void PageHeap::move_slab(Slab* slab, unsigned to) LOAM_NO_THREAD_SAFETY_ANALYSIS {
  if (!mutex_.try_lock()) return;  // another time
  const unsigned from = slab->shard;
  if (from != to && slab->state == SlabState::kActive) {
    shards_[from < to ? from : to].mutex.lock();
    shards_[from < to ? to : from].mutex.lock();
    static_cast<void>(join_standing(1 + from, ~0u));
    Region* const region = region_of(slab);
    const uint32_t begin = first_page_of(slab).index;
    uint64_t moved = 0;
    for (uint32_t page = begin; page != begin + kPagesPerSlab;) {
      Span* const run = free_run_at(region, page, 1 + from);
      if (run == nullptr) {
        ++page;
        continue;
      }
      parked(1 + from).take_out(run);
      parked(1 + to).push(run, 1 + to, run->large.parked_ms);
      moved += run->large.pages;
      page += static_cast<uint32_t>(run->large.pages);
    }
    set_parked(shards_[from], shards_[from].parked_pages - moved);
    set_parked(shards_[to], shards_[to].parked_pages + moved);
    __atomic_store_n(&slab->shard, static_cast<uint8_t>(to), __ATOMIC_RELAXED);
    shards_[from].mutex.unlock();
    shards_[to].mutex.unlock();
  }
  mutex_.unlock();
}

bool PageHeap::is_reserved(const PageShard& shard) const {
  const size_t by_shards = hints_.shards_in_use() * kReservedByShard.count;
  const size_t by_use = hints_.used_bytes() / kPageBytes / kReserveShare / hints_.shards_in_use();
  const size_t few = by_shards < kMostReserved.count ? by_shards : kMostReserved.count;
  const size_t most = few < by_use ? few : by_use;
  return __atomic_load_n(&shard.parked_pages, __ATOMIC_RELAXED) <= most &&
         shard.threads.load(std::memory_order_relaxed) != 0 &&
         __atomic_load_n(&shard.pushes, __ATOMIC_RELAXED) >= kParkedWhenBusy;
}

void PageHeap::stock_records(unsigned shard) {
  Lock lock(mutex_);
  Lock its(shards_[shard].mutex);
  for (Region* region = space_.first_region(); region != nullptr; region = region->next) {
    while (region->spares[shard].count < kSparesAtOnce) {
      Span* span = take_span_record(region);
      if (span == nullptr) break;
      keep_spare_record(region, shard, span);
    }
  }
}

// All records are handed out. There is one record for each page, so if pages are left, shards keep
// some records.
Span* PageHeap::take_last_record(Region* region) {
  for (unsigned s = 0; s < kPageShards; ++s) {
    Lock its(shards_[s].mutex);
    while (Span* const spare = take_spare_record(region, s)) return_span_record(region, spare);
  }
  return take_span_record(region);
}

void PageHeap::return_spares(unsigned shard) {
  for (Region* region = space_.first_region(); region != nullptr; region = region->next) {
    while (region->spares[shard].count > kMostSpares)
      return_span_record(region, take_spare_record(region, shard));
  }
}

void PageHeap::look_at_clock(PageShard& shard) { shard.now_ms = os::now_coarse_ms(); }

void PageHeap::park_large(Span* span, uint64_t since_ms) {
  park_in(shard_of(span), span, since_ms);
}

void PageHeap::give_home(Span* first) {
  const uint64_t now = os::now_coarse_ms();
  while (first != nullptr) {
    const unsigned s = shard_of(first);
    {
      Lock lock(shards_[s].mutex);
      for (Span* next; first != nullptr && shard_of(first) == s; first = next) {
        next = List<Span>::next(first);
        unpublish_large(first);
        park_large(first, now);
      }
    }
    note_parked();
  }
}

void PageHeap::give_batch(Span* first, unsigned count) {
  const unsigned s = shard_of(first);
  PageShard& shard = shards_[s];
  const uint64_t pages = first->large.pages;
  Span* const rest = List<Span>::next(first);
  bool together = true;
  {
    Lock lock(shard.mutex);
    // A slab of these runs may have moved to another shard (move_slab()).
    for (const Span* run = first; run != nullptr; run = List<Span>::next(run))
      together &= shard_of(run) == s;
    if (LOAM_LIKELY(together)) {
      const uint32_t pushes = shard.pushes;
      // As often as give_run() would for these runs, one after the other.
      if (pushes % kParkedPerLook == 0 || pushes % kParkedPerLook + count > kParkedPerLook)
        look_at_clock(shard);
      __atomic_store_n(&shard.pushes, pushes + count, __ATOMIC_RELAXED);
      first->standing.runs = count;
      first->standing.rest = rest;
      shard.standing.push(first, shard.now_ms);
      set_parked(shard, shard.parked_pages + count * pages);
    }
  }
  if (LOAM_UNLIKELY(!together)) return give_home(first);
  note_parked();
}

// Takes the first run of the batch. The second run then leads the rest.
Span* PageHeap::take_one_of_batch(PageShard& shard) {
  Span* const first = shard.standing.newest();
  Span* const second = first->standing.rest;
  shard.standing.pop_newest(first);
  if (second != nullptr) {
    Span* const rest = List<Span>::next(second);
    second->standing.runs = first->standing.runs - 1;
    second->standing.rest = rest;
    shard.standing.push(second, first->standing.since_ms);
  }
  first->kind = SpanKind::kLarge;
  set_parked(shard, shard.parked_pages - first->large.pages);
  return first;
}

PageHeap::Cut PageHeap::take_beside_standing(unsigned s, unsigned count, unsigned more,
                                             Span** out) {
  PageShard& shard = shards_[s];
  if (shard.standing.newest()->standing.pages == count) {
    *out = take_one_of_batch(shard);
    return Cut::kDone;
  }
  // A batch may hold a run from which this request can take a part, or one that fits after joining.
  Cut result;
  do {
    static_cast<void>(join_standing(1 + s, kJoinedAtOnce));
    result = take_parked(s, count, more, out);
  } while (result == Cut::kNothing && !shard.standing.empty());
  return result;
}

}  // namespace loam
