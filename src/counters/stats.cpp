#include "counters/stats.h"

#include <cstring>
#include <initializer_list>

#include "base/text.h"
#include "cache/cache_registry.h"
#include "counters/derived.h"
#include "counters/snapshot.h"
#include "map/metadata.h"
#include "observers/sampler.h"
#include "os/charge.h"
#include "pages/huge_map.h"
#include "private/heap_registry.h"
#include "small/remote_pool.h"

namespace loam::stats {

namespace {

size_t tail_bytes(unsigned c) {
  const SizeClassInfo& info = class_info(c);
  return Pages(info.pages).bytes() - size_t{info.slots} * info.bytes;
}

// Slots of classes so long that a search goes through them one by one.
constexpr unsigned kLongSlots = 1024;

// The figures of one heap: those of scope heap.
struct HeapSums {
  uint64_t small_bytes, small_blocks, large_bytes, large_blocks, huge_bytes, huge_blocks,
      large_requested;
  uint64_t cached_bytes, cached_blocks, deepest, spans, free_bytes, free_blocks, tail_bytes,
      unbacked_bytes;
  uint64_t set_aside, records, taken, given, batches, remote, queued, acquired, contended, refused,
      long_slots;
};

void put(const HeapSums& s, Values* out) {
  uint64_t* v = out->of;
  v[kLiveSmallBytes] = s.small_bytes;
  v[kLiveSmallBlocks] = s.small_blocks;
  v[kLiveLargeBytes] = s.large_bytes;
  v[kLiveLargeBlocks] = s.large_blocks;
  v[kLiveHugeBytes] = s.huge_bytes;
  v[kLiveHugeBlocks] = s.huge_blocks;
  v[kLiveBytes] = s.small_bytes + s.large_bytes + s.huge_bytes;
  v[kLiveBlocks] = s.small_blocks + s.large_blocks + s.huge_blocks;
  v[kLargeRoundingBytes] = s.large_bytes + s.huge_bytes - s.large_requested;
  v[kCachedBytes] = s.cached_bytes;
  v[kCachedBlocks] = s.cached_blocks;
  v[kLargestCacheDepth] = s.deepest;
  v[kSpans] = s.spans;
  v[kSpanFreeBytes] = s.free_bytes;
  v[kSpanFreeBlocks] = s.free_blocks;
  v[kSpanTailBytes] = s.tail_bytes;
  v[kUnbackedBytes] = s.unbacked_bytes;
  v[kSetAsideBytes] = s.set_aside;
  v[kPrivateRecordsBytes] = s.records;
  v[kRefilledBlocks] = s.taken;
  v[kReturnedBlocks] = s.given;
  v[kRemoteBatches] = s.batches;
  v[kRemoteBlocks] = s.remote;
  v[kQueuedBlocks] = s.queued;
  v[kLockAcquisitions] = s.acquired;
  v[kLockContentions] = s.contended;
  v[kLockRefusals] = s.refused;
}

void add_lock(const Mutex& mutex, HeapSums* s) {
  s->acquired += mutex.acquisitions();
  s->contended += mutex.contentions();
  s->refused += mutex.refusals();
}

void add_class(unsigned c, uint64_t spans, uint64_t tail, uint64_t free, uint64_t live,
               uint64_t cached, HeapSums* s) {
  const uint64_t bytes = class_info(c).bytes;
  s->spans += spans;
  s->free_blocks += free;
  s->free_bytes += free * bytes;
  s->tail_bytes += tail;
  s->small_blocks += live;
  s->small_bytes += live * bytes;
  s->cached_blocks += cached;
  s->cached_bytes += cached * bytes;
  if (cached > s->deepest) s->deepest = cached;
}

uint64_t live_slots(const HeapReading::Class& k, unsigned c) {
  const uint64_t out = k.spans * kSizeClasses[c].slots - k.free_slots + k.in_mixed;
  return k.cached < out ? out - k.cached : 0;
}

void add_private_class(unsigned c, const HeapReading::Class& k, HeapSums* s) {
  add_class(c, k.spans, k.spans * tail_bytes(c), k.free_slots, live_slots(k, c), k.cached, s);
  s->taken += k.taken;
  s->given += k.given;
  s->free_bytes -= k.in_mixed * kSizeClasses[c].bytes;
  if (kSizeClasses[c].bytes > kLongSlots) s->long_slots += k.free_slots;
}

LOAM_NOINLINE HeapReading add_private(PrivateHeap* heap, HeapSums* s) {
  HeapReading r;
  heap->read(&r, [s](unsigned c, const HeapReading::Class& k) { add_private_class(c, k, s); });
  s->spans += r.mixed_runs;
  s->free_bytes += Pages(r.mixed_pages).bytes();
  s->set_aside += r.set_aside;
  s->records += r.records;
  s->unbacked_bytes += Pages(r.unbacked_pages).bytes();
  s->acquired += r.lock_acquisitions;
  s->contended += r.lock_contentions;
  s->refused += r.lock_refusals;
  return r;
}

// Adds one class of the default heap.
void add_default_class(unsigned c, const ClassSnapshot& k, HeapSums* s) {
  add_class(c, k.spans, k.tail_bytes, k.free_slots, k.live, k.cached, s);
  s->taken += k.taken;
  s->given += k.given;
  s->batches += k.remote_batches;
  s->remote += k.remote_blocks;
  s->queued += k.queued;
  s->unbacked_bytes += Pages(k.unbacked_pages).bytes();
  s->acquired += k.lock_acquisitions;
  s->contended += k.lock_contentions;
  s->refused += k.lock_refusals;
  if (class_info(c).bytes > kLongSlots) s->long_slots += k.free_slots;
}

// Adds mixed spans, and the locks that all heaps share.
void add_shared(HeapSums* s) {
  const MixedStats mixed = default_small_heap.mixed().stats();
  s->spans += mixed.spans;
  s->free_bytes += mixed.free_bytes;
  s->unbacked_bytes += Pages(mixed.unbacked_pages).bytes();
  s->taken += mixed.taken;
  s->given += mixed.given;
  for (unsigned i = 0; i < mixed.parts; ++i) add_lock(default_small_heap.mixed().mutex(i), s);
  for (const Mutex* mutex : {&cache_registry.mutex(), static_cast<const Mutex*>(&page_heap.mutex()),
                             static_cast<const Mutex*>(&huge_map.mutex()),
                             static_cast<const Mutex*>(&remote_pool.mutex()),
                             static_cast<const Mutex*>(&metadata.mutex()),
                             static_cast<const Mutex*>(&heap_registry.mutex())}) {
    add_lock(*mutex, s);
  }
  for (unsigned i = 0; i < kPageShards; ++i) add_lock(page_heap.shard_mutex(i), s);
}

struct PrivateSums {
  uint64_t large_bytes, large_blocks;
};

// A function of its own and not inlined, so that its data does not lie on the stack together with
// that of its neighbours.
LOAM_NOINLINE void put_pages(const PageStats& pages, const HugeMap::Totals& huge,
                             uint64_t metadata_bytes, Values* out) {
  uint64_t* v = out->of;
  PageHeap::RunCounts runs;
  page_heap.count_runs(&runs);
  uint64_t dirty_runs = 0, clean_runs = runs.uncommitted;
  for (unsigned k = 0; k < PageHeap::RunCounts::kBins; ++k) {
    dirty_runs += runs.dirty[k];
    clean_runs += runs.clean[k];
  }
  v[kFreeRunBytes] = pages.committed_bytes - pages.used.bytes();
  v[kDirtyBytes] = pages.dirty.bytes();
  v[kParkedBytes] = pages.parked.bytes();
  v[kMetadataBytes] = metadata_bytes;
  v[kCommittedBytes] = pages.committed_bytes + huge.mapped_bytes + metadata_bytes;
  v[kReservedBytes] = pages.reserved_bytes + huge.mapped_bytes + metadata_bytes;
  v[kFreeListLength] += dirty_runs;
  v[kUncommittedRanges] = clean_runs;
  v[kLargestFreeRunBytes] = pages.longest_backed_run_bytes;
  v[kPeakUsedBytes] = pages.peak_used.bytes();
  v[kPeakHugeBytes] = huge.peak_mapped_bytes;
  v[kLargeAllocs] = pages.large_allocations + huge.allocations;
  v[kPurgeCalls] = pages.purge_calls;
  v[kPurgeNanoseconds] = pages.purge_ns;
  v[kPurgedTotalBytes] = Pages(pages.purged_pages).bytes();
  v[kFreshBytes] = Pages(pages.fresh_pages).bytes();
  v[kRefusedCalls] = pages.refused_calls;
  // relaxed: a figure
  if constexpr (os::kChargesCommit)
    v[kChargedBytes] = __atomic_load_n(&os::charged_bytes, __ATOMIC_RELAXED);
}

LOAM_NOINLINE void put_calls(Values* out) {
  uint64_t* v = out->of;
  const CacheRegistry::Totals caches = cache_registry.totals();
  v[kThreads] = caches.threads;
  v[kCacheMisses] = caches.refills;
  v[kCacheFlushes] = caches.flushes;
  v[kCacheFrees] = caches.pushed;
  os::count_faults(&v[kMinorFaults], &v[kMajorFaults]);
  if (!sampler.on()) return;
  CallCounts calls;
  cache_registry.sum_calls(&calls);
  v[kSmallRoundingBytes] = sampler.live_rounding();
  v[kAllocsTo1k] = calls.allocs[0];
  v[kAllocsTo8k] = calls.allocs[1];
  v[kAllocsOver8k] = calls.allocs[2] + v[kLargeAllocs];
  v[kFreesTo1k] = calls.frees[0];
  v[kFreesTo8k] = calls.frees[1];
  v[kFreesOver8k] = calls.frees[2] + v[kLargeFrees];
  v[kCachedAllocs] = calls.alloc_hits;
  v[kCachedFrees] = calls.free_hits;
  v[kTimedAllocs] = calls.timed_allocs[0] + calls.timed_allocs[1];
  v[kTimedAllocNanoseconds] = calls.timed_alloc_ns[0] + calls.timed_alloc_ns[1];
  v[kTimedFrees] = calls.timed_frees[0] + calls.timed_frees[1];
  v[kTimedFreeNanoseconds] = calls.timed_free_ns[0] + calls.timed_free_ns[1];
  if (calls.timed_alloc_ns[1] != 0)
    v[kAllocRate] = calls.timed_allocs[1] * 1'000'000'000u / calls.timed_alloc_ns[1];
  if (calls.timed_free_ns[1] != 0)
    v[kFreeRate] = calls.timed_frees[1] * 1'000'000'000u / calls.timed_free_ns[1];
}

PrivateHeap* private_of(loam_heap* heap) {
  return heap_registry.is_heap(heap) ? reinterpret_cast<PrivateHeap*>(heap) : nullptr;
}

void put_lock(const char* name, const Mutex& mutex, LockFigures* out) {
  *out = LockFigures{};
  text::copy(out->name, name, sizeof out->name);
  out->taken = mutex.acquisitions();
  out->waited = mutex.contentions();
  out->refused = mutex.refusals();
}

// Writes "PREFIX" and a number in decimal. pre: it fits
void name_with_number(char (&to)[32], const char* prefix, uint64_t number) {
  const text::Decimal decimal(number);
  const size_t length = text::length(prefix);
  memcpy(to, prefix, length);
  memcpy(to + length, decimal.digits(), decimal.length() + 1);
}

// Writes one of several locks of the same kind.
void put_lock(const char* prefix, unsigned number, const Mutex& mutex, LockFigures* out) {
  char name[32];
  name_with_number(name, prefix, number);
  put_lock(name, mutex, out);
}

}  // namespace

bool read(loam_heap* heap, Values* out) {
  memset(out, 0xff, sizeof *out);  // every value is kUnknown
  HeapSums sums{};
  if (heap != nullptr && heap != default_heap()) {
    PrivateHeap* own = private_of(heap);
    if (own == nullptr) return false;
    const HeapReading reading = add_private(own, &sums);
    // These include blocks with a mapping of their own. Their requested sizes are not recorded, so
    // their rounding shows as 0 here.
    sums.large_bytes = sums.large_requested = reading.large_bytes;
    sums.large_blocks = reading.large_blocks;
    put(sums, out);
    derive_heap(out->of);
    return true;
  }
  Snapshot snapshot;
  take_snapshot(&snapshot,
                [&sums](unsigned c, const ClassSnapshot& k) { add_default_class(c, k, &sums); });
  add_shared(&sums);
  PrivateSums others{};
  heap_registry.for_each([&](PrivateHeap* own) {
    HeapSums its{};
    const HeapReading reading = add_private(own, heap == nullptr ? &sums : &its);
    others.large_bytes += reading.large_bytes;
    others.large_blocks += reading.large_blocks;
  });
  const CacheRegistry::Runs runs = cache_registry.runs();
  PageStats pages = page_heap.stats();
  runs.complete(&pages);
  sums.cached_bytes += runs.held.bytes();
  const HugeMap::Totals huge = huge_map.totals();
  sums.large_bytes = pages.large_pages.bytes();
  sums.large_blocks = pages.large_blocks;
  sums.huge_bytes = huge.mapped_bytes;
  sums.huge_blocks = huge.blocks;
  sums.large_requested = pages.large_requested + huge.requested_bytes;
  put(sums, out);
  if (heap != nullptr) {
    // The default heap's share. It is not recorded which private heap's blocks have a mapping of
    // their own.
    uint64_t* v = out->of;
    v[kLiveBytes] -= others.large_bytes;
    v[kLiveBlocks] -= others.large_blocks;
    if (others.large_blocks != 0) {
      v[kLiveLargeBytes] = v[kLiveLargeBlocks] = v[kLiveHugeBytes] = v[kLiveHugeBlocks] = kUnknown;
      v[kLargeRoundingBytes] = kUnknown;
    }
    derive_heap(v);
    return true;
  }
  derive_heap(out->of);
  out->of[kFreeListLength] = sums.long_slots;
  put_pages(pages, huge, snapshot.metadata_bytes, out);
  derive_process(out->of);  // put_calls() adds to large_frees
  put_calls(out);
  derive_process(out->of);
  return true;
}

bool read_class(loam_heap* heap, unsigned size_class, Class* out) {
  memset(out, 0xff, sizeof *out);
  uint64_t* v = out->values.of;
  v[kClassBytes] = class_info(size_class).bytes;
  uint64_t spans, tail;
  if (heap != nullptr && heap != default_heap()) {
    PrivateHeap* own = private_of(heap);
    if (own == nullptr) return false;
    HeapReading reading;
    HeapReading::Class k{};
    own->read(&reading, [&](unsigned c, const HeapReading::Class& its) {
      if (c == size_class) k = its;
    });
    spans = k.spans;
    tail = spans * tail_bytes(size_class);
    v[kClassLiveBlocks] = live_slots(k, size_class);
    v[kClassCachedBlocks] = k.cached;
    v[kClassFreeBlocks] = k.free_slots;
    v[kClassRefilledBlocks] = k.taken;
    v[kClassReturnedBlocks] = k.given;
  } else {
    const ClassSnapshot k = look_at_class(size_class);
    spans = k.spans;
    tail = k.tail_bytes;
    v[kClassLiveBlocks] = k.live;
    v[kClassCachedBlocks] = k.cached;
    v[kClassFreeBlocks] = k.free_slots;
    v[kClassQueuedBlocks] = k.queued;
    v[kClassUnbackedBytes] = Pages(k.unbacked_pages).bytes();
    v[kClassRefilledBlocks] = k.taken;
    v[kClassReturnedBlocks] = k.given;
    v[kClassRemoteBlocks] = k.remote_blocks;
    v[kClassLockAcquisitions] = k.lock_acquisitions;
    v[kClassLockContentions] = k.lock_contentions;
    v[kClassLockRefusals] = k.lock_refusals;
    uint64_t partial = 0;
    for (unsigned i = 0; i < kOccupancyBuckets - 1; ++i)
      partial += out->occupancy[i] = k.occupancy[i];
    v[kClassFullSpans] = out->occupancy[kOccupancyBuckets - 1] = spans - partial;
  }
  v[kClassSpans] = spans;
  v[kClassTailBytes] = tail;
  return true;
}

bool read_lock(unsigned index, LockFigures* out) {
  const unsigned classes = class_count();
  if (index < classes) {
    const unsigned c = class_number(index);
    const BinStats bin = default_small_heap.stats(c);
    *out = LockFigures{};
    name_with_number(out->name, "class-", class_info(c).bytes);
    out->taken = bin.lock_acquisitions;
    out->waited = bin.lock_contentions;
    out->refused = bin.lock_refusals;
    return true;
  }
  index -= classes;
  if (index < MixedHeap::kHomes) {
    put_lock("mixed-", index, default_small_heap.mixed().mutex(index), out);
    return true;
  }
  index -= MixedHeap::kHomes;
  const struct {
    const char* name;
    const Mutex& mutex;
  } shared[] = {{"registry", cache_registry.mutex()}, {"page_heap", page_heap.mutex()},
                {"huge", huge_map.mutex()},           {"metadata", metadata.mutex()},
                {"remote_pool", remote_pool.mutex()}, {"private_registry", heap_registry.mutex()}};
  constexpr unsigned kShared = sizeof shared / sizeof *shared;
  if (index < kShared) {
    put_lock(shared[index].name, shared[index].mutex, out);
    return true;
  }
  index -= kShared;
  if (index < kPageShards) {
    put_lock("page-shard-", index, page_heap.shard_mutex(index), out);
    return true;
  }
  return heap_registry.at(index - kPageShards, [&](PrivateHeap* heap) {
    char number[32];
    name_with_number(number, "heap-", heap->generation());
    put_lock(heap->name()[0] != '\0' ? heap->name() : number, heap->mutex(), out);
  });
}

unsigned read_histogram(Histogram which, uint64_t (&out)[kHistogramBins]) {
  memset(out, 0, sizeof out);
  if (which == Histogram::kFreeRuns || which == Histogram::kUnbackedRuns) {
    PageHeap::RunCounts runs;
    page_heap.count_runs(&runs);
    memcpy(out, which == Histogram::kFreeRuns ? runs.dirty : runs.clean, sizeof runs.dirty);
    return PageHeap::RunCounts::kBins;
  }
  if (!sampler.on()) return 0;
  CallCounts calls;
  cache_registry.sum_calls(&calls);
  static_assert(CallCounts::kTimeBins == kHistogramBins);
  memcpy(out, which == Histogram::kAllocTime ? calls.alloc_log2_ns : calls.free_log2_ns,
         sizeof out);
  return kHistogramBins;
}

loam_heap* private_heap_at(unsigned index, HeapName* out) {
  loam_heap* handle = nullptr;
  static_cast<void>(heap_registry.at(index, [&](PrivateHeap* heap) {
    handle = reinterpret_cast<loam_heap*>(heap);
    memcpy(out->name, heap->name(), sizeof out->name);
    out->generation = heap->generation();
  }));
  return handle;
}

}  // namespace loam::stats
