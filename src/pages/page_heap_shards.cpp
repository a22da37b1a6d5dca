// The page heap's shards: freed large runs, taken and given without the page heap's own lock.
#include "os/os.h"
#include "pages/page_heap.h"

namespace loam {

namespace {

// Records that a shard gets for its cuts at once, and that it may keep beyond a look at what is old. Chosen: a cut takes
// one and a join gives one, so few suffice; more are memory in the region's header, 64 bytes each.
constexpr uint32_t kSparesAtOnce = 16;
constexpr uint32_t kMostSpares = 64;

// How many runs are parked in a shard between two looks at the clock: a look costs as much as a fifth of parking. What is
// parked meanwhile may seem older than it is, and for long only in a program that frees so few that nothing is lost.
constexpr uint32_t kParkedPerLook = 8;

// Runs that are parked in a shard before it is worth keeping others away. Chosen: whoever frees a thousand large blocks is
// likely to go on; less would keep memory from others for nothing.
constexpr uint32_t kParkedWhenBusy = 1024;

uint64_t now_ms() { return os::now_coarse_ns() / 1'000'000; }

}  // namespace

unsigned PageHeap::join_shard() {
  // The one with the fewest threads; by two threads at once perhaps not quite. So threads that come one after another
  // use the same one.
  unsigned best = 0;
  uint32_t fewest = ~uint32_t{0};
  for (unsigned s = 0; s < kPageShards; ++s) {
    // relaxed: a hint
    const uint32_t threads = shards_[s].threads.load(std::memory_order_relaxed);
    if (threads >= fewest) continue;
    best = s;
    fewest = threads;
  }
  shards_[best].threads.fetch_add(1, std::memory_order_relaxed);
  use_shard(best);
  return best;
}

void PageHeap::use_shard(unsigned shard) {
  // relaxed: who looks at shards a moment too early misses what is parked there a moment later
  unsigned count = shards_in_use();
  while (count <= shard && !shards_in_use_.compare_exchange_weak(count, shard + 1, std::memory_order_relaxed)) {
  }
}

void PageHeap::leave_shard(unsigned shard) { shards_[shard].threads.fetch_sub(1, std::memory_order_relaxed); }

Pages PageHeap::pages_in_shards() const {
  Pages sum{};
  const unsigned count = shards_in_use();
  for (unsigned s = 0; s < count; ++s) sum += Pages(__atomic_load_n(&shards_[s].parked_pages, __ATOMIC_RELAXED));
  return sum;
}

void PageHeap::set_parked(PageShard& shard, uint64_t pages) {
  __atomic_store_n(&shard.parked_pages, pages, __ATOMIC_RELAXED);
}

LOAM_INLINE PageHeap::Cut PageHeap::take_from(unsigned shard, unsigned count, unsigned more, Span** out) {
  if (shard >= kPageShards) __builtin_unreachable();  // so its runs are no spans': one question less
  const Cut result = cut_parked(1 + shard, count, more, out);
  if (LOAM_LIKELY(result == Cut::kDone)) {
    set_parked(shards_[shard], shards_[shard].parked_pages - (*out)->large.pages);
  }
  return result;
}

// A run in so far nobody's name.
LOAM_INLINE Span* PageHeap::unparked(Span* span, size_t requested) {
  span->kind = SpanKind::kLarge;
  span->large.requested = requested;
  span->large.cached_at = 0;  // these two are owned.run and owned.reciprocal in a private heap's
  span->large.parked_ms = 0;
  return span;
}

Span* PageHeap::take_run(Pages pages, size_t requested, bool slack, unsigned own) {
  const unsigned count = static_cast<unsigned>(pages.count);
  const unsigned more = slack ? slack_of(pages) : 0;
  PageShard& shard = shards_[own];
  Cut result = Cut::kNothing;
  // relaxed: what comes a moment later is missed
  if (LOAM_LIKELY(__atomic_load_n(&shard.parked_pages, __ATOMIC_RELAXED) >= count)) {
    Span* span = nullptr;
    shard.mutex.lock();
    result = take_from(own, count, more, &span);
    shard.mutex.unlock();
    if (LOAM_LIKELY(result == Cut::kDone)) return unparked(span, requested);
    if (result == Cut::kCloserElsewhere) return nullptr;
  }
  if (pages.count > kPagesPerBlock) return nullptr;
  return take_run_anywhere(count, requested, more, own, result == Cut::kNoRecord);
}

// Those of others, rather than memory that is not backed; its own first, if it had but no record.
Span* PageHeap::take_run_anywhere(unsigned count, size_t requested, unsigned more, unsigned own, bool once_more) {
  const unsigned shards = shards_in_use();
  for (unsigned i = once_more ? 0 : 1; i < shards; ++i) {
    const unsigned s = (own + i) % shards;
    PageShard& shard = shards_[s];
    if (__atomic_load_n(&shard.parked_pages, __ATOMIC_RELAXED) < count) continue;
    if (s != own && is_reserved(shard)) continue;
    Span* span = nullptr;
    Cut result = Cut::kNoRecord;
    for (int attempt = 0; attempt < 2 && result == Cut::kNoRecord; ++attempt) {
      if (attempt == 1) stock_records(s);
      Lock lock(shard.mutex);
      result = take_from(s, count, more, &span);
    }
    if (result == Cut::kDone) return unparked(span, requested);
    if (result == Cut::kCloserElsewhere) return nullptr;
  }
  return nullptr;
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

void PageHeap::return_spares(unsigned shard) {
  for (Region* region = regions_; region != nullptr; region = region->next) {
    while (region->spares[shard].count > kMostSpares) return_span_record(region, take_spare_record(region, shard));
  }
}

LOAM_INLINE void PageHeap::park_in(unsigned s, Span* span, uint64_t since_ms) {
  const uint64_t pages = span->large.pages;
  parked(1 + s).push(span, 1 + s, since_ms);
  set_parked(shards_[s], shards_[s].parked_pages + pages);
}

void PageHeap::park_large(Span* span, uint64_t since_ms) { park_in(shard_of(span), span, since_ms); }

void PageHeap::give_run(Span* span) {
  const unsigned s = shard_of(span);
  PageShard& shard = shards_[s];
  unpublish_large(span);
  shard.mutex.lock();
  const uint32_t pushes = shard.pushes;
  __atomic_store_n(&shard.pushes, pushes + 1, __ATOMIC_RELAXED);
  if (LOAM_UNLIKELY(pushes % kParkedPerLook == 0)) shard.now_ms = now_ms();
  park_in(s, span, shard.now_ms);
  shard.mutex.unlock();
  note_parked();
}

void PageHeap::give_home(Span* first) {
  const uint64_t now = now_ms();
  while (first != nullptr) {
    const unsigned s = shard_of(first);
    {
      Lock lock(shards_[s].mutex);
      for (Span* next; first != nullptr && shard_of(first) == s; first = next) {
        next = List<Span>::next(first);
        park_large(first, now);
      }
    }
    note_parked();
  }
}

}  // namespace loam
