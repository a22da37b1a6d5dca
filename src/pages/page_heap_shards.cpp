// The page heap's shards: freed large runs, taken and given without the page heap's own lock.
#include "os/os.h"
#include "pages/shard_runs.h"

namespace loam {

namespace {

// Records that a shard gets for its cuts at once, and that it may keep beyond a look at what is old. Chosen: a cut takes
// one and a join gives one, so few suffice; more are memory in the region's header, 64 bytes each.
constexpr uint32_t kSparesAtOnce = 16;
constexpr uint32_t kMostSpares = 64;

// Runs that are parked in a shard before it is worth keeping others away. Chosen: whoever frees a thousand large blocks is
// likely to go on; less would keep memory from others for nothing.
constexpr uint32_t kParkedWhenBusy = 1024;

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

// Those of others, rather than memory that is not backed; its own first, if nobody looked or it had but no record.
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
      result = take_from(s, count, more, &span);
    }
    if (result == Cut::kDone) return span;
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

void PageHeap::look_at_clock(PageShard& shard) { shard.now_ms = os::now_coarse_ms(); }

void PageHeap::park_large(Span* span, uint64_t since_ms) { park_in(shard_of(span), span, since_ms); }

void PageHeap::give_home(Span* first) {
  const uint64_t now = os::now_coarse_ms();
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
