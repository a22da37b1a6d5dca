// The page heap's shards: freed large runs, taken and given without the page heap's own lock.
#include "os/os.h"
#include "pages/shard_runs.h"

namespace loam {

namespace {

// Records that a shard gets for its cuts at once, and that it may keep beyond a look at what is
// old. Chosen: a cut takes one and a join gives one, so few suffice; more are memory in the
// region's header, 64 bytes each.
constexpr uint32_t kSparesAtOnce = 16;
constexpr uint32_t kMostSpares = 64;

// Runs that are parked in a shard before it is worth keeping others away. Chosen: whoever frees a
// thousand large blocks is likely to go on; less would keep memory from others for nothing.
constexpr uint32_t kParkedWhenBusy = 1024;

// Runs of batches that are joined for one request of another length, before it looks, and as often
// as it finds nothing. Chosen: as with spans (page_heap_spans.cpp).
constexpr unsigned kRunsJoinedPerRequest = 32;

// Runs that a shard's threads take out of others' shards until the block of the last one becomes
// theirs. Chosen: a move costs some microseconds and the page heap's lock, a run from elsewhere a
// lock that its owner may hold.
constexpr uint32_t kTakenPerMove = 16;

}  // namespace

unsigned PageHeap::join_shard() {
  // The one with the fewest threads, so that threads that come one after another use the same one.
  for (;;) {
    unsigned best = 0;
    uint32_t fewest = ~uint32_t{0};
    for (unsigned s = 0; s < kPageShards; ++s) {
      // relaxed: who joined is seen below
      const uint32_t threads = shards_[s].threads.load(std::memory_order_relaxed);
      if (threads >= fewest) continue;
      best = s;
      fewest = threads;
    }
    // Threads that start at once must not choose the same: they would meet at its lock for as long
    // as they live.
    if (!shards_[best].threads.compare_exchange_strong(fewest, fewest + 1,
                                                       std::memory_order_relaxed))
      continue;
    use_shard(best);
    return best;
  }
}

void PageHeap::use_shard(unsigned shard) {
  // relaxed: who looks at shards a moment too early misses what is parked there a moment later
  unsigned count = shards_in_use();
  while (count <= shard &&
         !shards_in_use_.compare_exchange_weak(count, shard + 1, std::memory_order_relaxed)) {
  }
}

void PageHeap::leave_shard(unsigned shard) {
  shards_[shard].threads.fetch_sub(1, std::memory_order_relaxed);
}

Pages PageHeap::pages_in_shards() const {
  Pages sum{};
  const unsigned count = shards_in_use();
  for (unsigned s = 0; s < count; ++s)
    sum += Pages(__atomic_load_n(&shards_[s].parked_pages, __ATOMIC_RELAXED));
  return sum;
}

// Those of others, rather than memory that is not backed; its own first, if nobody looked or it had
// but no record.
Span* PageHeap::take_run_anywhere(unsigned count, unsigned more, unsigned own, bool own_too) {
  const unsigned shards = shards_in_use();
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
      result = LOAM_UNLIKELY(!shard.batches.empty()) ? take_beside_batches(s, count, more, &span)
                                                     : take_from(s, count, more, &span);
    }
    if (result == Cut::kDone) {
      if (s != own) note_taken_elsewhere(own, span);
      return span;
    }
    if (result == Cut::kCloserElsewhere) return nullptr;
  }
  return nullptr;
}

// Who lives on what others freed would go on meeting them, since what it frees returns to where it
// was: threads that began together, and whoever comes after a thread that had all blocks.
void PageHeap::note_taken_elsewhere(unsigned own, const Span* span) {
  // relaxed: of two threads of a shard at once one may not count
  std::atomic<uint32_t>& count = shards_[own].taken_elsewhere;
  const uint32_t taken = count.load(std::memory_order_relaxed) + 1;
  count.store(taken, std::memory_order_relaxed);
  if (taken % kTakenPerMove == 0)
    move_block(&region_of(span)->blocks[span->first_page / kPagesPerBlock], own);
}

// What is parked in the block goes with it. Both locks, and the page heap's: whoever holds any of
// them finds a block's shard as it is.
void PageHeap::move_block(Block* block, unsigned to) LOAM_NO_THREAD_SAFETY_ANALYSIS {
  if (!mutex_.try_lock()) return;  // another time
  const unsigned from = block->shard;
  if (from != to && block->state == BlockState::kActive) {
    shards_[from < to ? from : to].mutex.lock();
    shards_[from < to ? to : from].mutex.lock();
    while (join_batches(from, kPagesPerBlock)) {
    }
    Region* const region = region_of(block);
    const uint32_t begin = first_page_of(block).index;
    uint64_t moved = 0;
    for (uint32_t page = begin; page != begin + kPagesPerBlock;) {
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
    __atomic_store_n(&block->shard, static_cast<uint8_t>(to), __ATOMIC_RELAXED);
    shards_[from].mutex.unlock();
    shards_[to].mutex.unlock();
  }
  mutex_.unlock();
}

bool PageHeap::is_reserved(const PageShard& shard) const {
  if (__atomic_load_n(&shard.parked_pages, __ATOMIC_RELAXED) > kReserve.count) return false;
  if (shard.threads.load(std::memory_order_relaxed) == 0) return false;
  if (__atomic_load_n(&shard.pushes, __ATOMIC_RELAXED) < kParkedWhenBusy) return false;
  const size_t by_share = used_bytes_hint() / kReserveShare;
  return pages_in_shards().bytes() <= (by_share > kReserves ? by_share : kReserves);
}

void PageHeap::stock_records(unsigned shard) {
  Lock lock(mutex_);
  Lock its(shards_[shard].mutex);
  for (Region* region = regions_; region != nullptr; region = region->next) {
    while (region->spares[shard].count < kSparesAtOnce) {
      Span* span = take_span_record(region);
      if (span == nullptr) break;
      keep_spare_record(region, shard, span);
    }
  }
}

// All records were handed out. There is one a page, so where pages are left, shards keep some.
Span* PageHeap::take_last_record(Region* region) {
  for (unsigned s = 0; s < kPageShards; ++s) {
    Lock its(shards_[s].mutex);
    while (Span* const spare = take_spare_record(region, s)) return_span_record(region, spare);
  }
  return take_span_record(region);
}

void PageHeap::return_spares(unsigned shard) {
  for (Region* region = regions_; region != nullptr; region = region->next) {
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
    // A block of theirs may have changed its shard (move_block()).
    for (const Span* run = first; run != nullptr; run = List<Span>::next(run))
      together &= shard_of(run) == s;
    if (LOAM_LIKELY(together)) {
      const uint32_t pushes = shard.pushes;
      // As give_run() would, one after the other.
      if (pushes % kParkedPerLook == 0 || pushes % kParkedPerLook + count > kParkedPerLook)
        look_at_clock(shard);
      __atomic_store_n(&shard.pushes, pushes + count, __ATOMIC_RELAXED);
      first->batch.runs = count;
      first->batch.rest = rest;
      first->batch.since_ms = shard.now_ms;
      shard.batches.push_front(first);
      set_parked(shard, shard.parked_pages + count * pages);
    }
  }
  if (LOAM_UNLIKELY(!together)) return give_home(first);
  note_parked();
}

// The first run goes, and the second one leads what is left.
Span* PageHeap::take_one_of_batch(PageShard& shard) {
  Span* const first = shard.batches.front();
  Span* const second = first->batch.rest;
  shard.batches.remove(first);
  if (second != nullptr) {
    Span* const rest = List<Span>::next(second);
    second->batch.runs = first->batch.runs - 1;
    second->batch.rest = rest;
    second->batch.since_ms = first->batch.since_ms;
    shard.batches.push_front(second);
  }
  first->kind = SpanKind::kLarge;
  set_parked(shard, shard.parked_pages - first->large.pages);
  return first;
}

PageHeap::Cut PageHeap::take_beside_batches(unsigned s, unsigned count, unsigned more, Span** out) {
  PageShard& shard = shards_[s];
  if (shard.batches.front()->batch.pages == count) {
    *out = take_one_of_batch(shard);
    return Cut::kDone;
  }
  // What waits as it stands may be what this request wants a part of, or more.
  Cut result;
  do {
    static_cast<void>(join_batches(s, kRunsJoinedPerRequest));
    result = take_from(s, count, more, out);
  } while (result == Cut::kNothing && !shard.batches.empty());
  return result;
}

void PageHeap::join_batch(unsigned s, Span* batch) {
  shards_[s].batches.remove(batch);
  const uint64_t since_ms = batch->batch.since_ms;
  Span* rest = batch->batch.rest;
  for (Span* span = batch; span != nullptr;) {
    unpublish_large(span);
    parked(1 + s).push(span, 1 + s, since_ms);
    span = rest;
    if (span != nullptr) rest = List<Span>::next(span);
  }
}

bool PageHeap::join_batches(unsigned s, unsigned most) {
  unsigned joined = 0;
  Span* batch = shards_[s].batches.back();
  const bool some = batch != nullptr;
  for (; batch != nullptr && joined < most; batch = shards_[s].batches.back()) {
    joined += static_cast<unsigned>(batch->batch.runs);
    join_batch(s, batch);
  }
  return some;
}

}  // namespace loam
