#include "counters/counter_directory.h"

#include "cache/cache_registry.h"
#include "map/metadata.h"
#include "observers/detours.h"
#include "observers/recording_request.h"
#include "observers/sampler.h"
#include "os/charge.h"
#include "pages/huge_map.h"
#include "private/heap_registry.h"
#include "small/remote_pool.h"

// The records are no standard-layout types, but none has a virtual base, so offsetof() is right for
// them.
#pragma GCC diagnostic ignored "-Winvalid-offsetof"

namespace loam {

namespace counter_format {

// Tables in the order of formats/counters.toml; fields name their table by this number.
enum Table : uint32_t {
  kConstants,
  kClasses,
  kBins,
  kMixed,
  kRegistry,
  kCaches,
  kMagazines,
  kPageHeap,
  kRegions,
  kExtents,
  kSlabs,
  kShards,
  kHuge,
  kHugeBlocks,
  kMetadata,
  kRemotePool,
  kSampler,
  kPrivateRegistry,
  kPrivateHeaps,
  kPrivateBins,
  kPrivateCaches,
  kPrivateMagazines,
  kMoreBins,
  kSplitClasses,
  kIdleMappings,
  kSpans,
  kPrivateRuns,
  kRemoteBatches,
  kMoreRemoteBatches,
  kStashed,
  kMoreStashed,
  kFirstRecords,
  kCommitCharge,  // last: absent where the system counts none
  kTables = kCommitCharge + os::kChargesCommit
};

struct Constants {
  uint64_t page_bytes = kPageBytes;
  uint64_t block_bytes = kSlabBytes;
  uint64_t map_bytes_per_block = kMapBytesPerSlab;
  uint64_t span_record_bytes = sizeof(Span);
  uint64_t magazine_limit = magazine_policy::kMaxCapacity;
  uint64_t frees_per_look = 0;
  uint64_t granule_bytes = kGranuleBytes;
  uint64_t private_slot_bytes = sizeof(CacheSlot);
};

constexpr uint32_t kMaxListed = 1u
                                << 20;  // records in a list: a bound for readers, the heap has none

constexpr void set_name(char (&to)[24], const char* from) {
  for (unsigned i = 0; from[i] != '\0'; ++i) to[i] = from[i];  // too long: no constant, so no build
}

constexpr CounterTable table(const char* name, TableKind kind, const void* address, size_t stride,
                             size_t count, size_t lock = kNoOffset, size_t link = kNoOffset) {
  CounterTable t{};
  set_name(t.name, name);
  t.kind = kind;
  t.parent = kNoOffset;
  t.address = address;
  t.stride = static_cast<uint32_t>(stride);
  t.count = static_cast<uint32_t>(count);
  t.link = static_cast<uint32_t>(link);
  t.lock = static_cast<uint32_t>(lock);
  return t;
}

constexpr CounterTable inner_table(const char* name, TableKind kind, Table parent, size_t offset,
                                   size_t stride, size_t count, size_t link = kNoOffset) {
  CounterTable t = table(name, kind, nullptr, stride, count, kNoOffset, link);
  t.parent = parent;
  t.offset = offset;
  return t;
}

constexpr CounterField field(Table of, const char* name, size_t offset, size_t width,
                             size_t count = 1) {
  CounterField f{};
  set_name(f.name, name);
  f.table = of;
  f.offset = static_cast<uint32_t>(offset);
  f.width = static_cast<uint32_t>(width);
  f.count = static_cast<uint32_t>(count);
  return f;
}

}  // namespace counter_format

using namespace counter_format;

// Friend of the classes whose figures it names; no other code reads their members.
struct CounterFields {
  static constexpr size_t lock_of(size_t mutex) {
    return mutex + __builtin_offsetof(Mutex, state_);
  }

  static constexpr Constants make_constants() {
    Constants c;
    c.frees_per_look = PointerChecks::kFreesPerLook;
    return c;
  }
  static const Constants constants;

  // The fields of a table, one after another.
  struct Writer {
    CounterField* next;
    Table table;
    constexpr Writer& operator()(const char* name, size_t offset, size_t width, size_t count = 1) {
      *next++ = field(table, name, offset, width, count);
      return *this;
    }
    constexpr Writer& lock(size_t mutex) {
      (*this)("lock_state", mutex + __builtin_offsetof(Mutex, state_), 4);
      (*this)("lock_acquisitions", mutex + __builtin_offsetof(Mutex, acquisitions_), 8);
      (*this)("lock_contentions", mutex + __builtin_offsetof(Mutex, contentions_), 8);
      return (*this)("lock_refusals", mutex + __builtin_offsetof(Mutex, refusals_), 4);
    }
    constexpr Writer& calls(size_t at) {
      (*this)("allocs", at + __builtin_offsetof(CallCounts, allocs), 8, CallCounts::kBands);
      (*this)("frees", at + __builtin_offsetof(CallCounts, frees), 8, CallCounts::kBands);
      (*this)("alloc_hits", at + __builtin_offsetof(CallCounts, alloc_hits), 8);
      (*this)("free_hits", at + __builtin_offsetof(CallCounts, free_hits), 8);
      (*this)("timed_allocs", at + __builtin_offsetof(CallCounts, timed_allocs), 8, 2);
      (*this)("timed_alloc_ns", at + __builtin_offsetof(CallCounts, timed_alloc_ns), 8, 2);
      (*this)("timed_frees", at + __builtin_offsetof(CallCounts, timed_frees), 8, 2);
      (*this)("timed_free_ns", at + __builtin_offsetof(CallCounts, timed_free_ns), 8, 2);
      (*this)("alloc_log2_ns", at + __builtin_offsetof(CallCounts, alloc_log2_ns), 8,
              CallCounts::kTimeBins);
      return (*this)("free_log2_ns", at + __builtin_offsetof(CallCounts, free_log2_ns), 8,
                     CallCounts::kTimeBins);
    }
    constexpr Writer& runs(size_t at) {
      (*this)("runs_taken", at + __builtin_offsetof(RunCounts, taken), 8);
      (*this)("runs_given", at + __builtin_offsetof(RunCounts, given), 8);
      (*this)("run_pages_taken", at + __builtin_offsetof(RunCounts, taken_pages), 8);
      (*this)("run_pages_given", at + __builtin_offsetof(RunCounts, given_pages), 8);
      (*this)("run_requested_taken", at + __builtin_offsetof(RunCounts, taken_requested), 8);
      return (*this)("run_requested_given", at + __builtin_offsetof(RunCounts, given_requested), 8);
    }
  };

#define LOAM_FIELD(name, type, member) \
  (name, __builtin_offsetof(type, member), sizeof(type::member))

  static constexpr CounterField* write_small(CounterField* next) {
    next = Writer{next, kConstants} LOAM_FIELD("page_bytes", Constants, page_bytes)
               LOAM_FIELD("block_bytes", Constants, block_bytes)
                   LOAM_FIELD("map_bytes_per_block", Constants, map_bytes_per_block)
                       LOAM_FIELD("span_record_bytes", Constants, span_record_bytes)
                           LOAM_FIELD("magazine_limit", Constants, magazine_limit)
                               LOAM_FIELD("frees_per_look", Constants, frees_per_look)
                                   LOAM_FIELD("granule_bytes", Constants, granule_bytes) LOAM_FIELD(
                                       "private_slot_bytes", Constants, private_slot_bytes)
                                       .next;
    next = write_class(next, kClasses);
    next = write_class(next, kSplitClasses);
    next = write_bin(next, kBins);
    return Writer{next, kMixed}
        .lock(__builtin_offsetof(MixedPart, mutex_)) LOAM_FIELD("spans", MixedPart, spans_)
            LOAM_FIELD("span_pages", MixedPart, span_pages_)
                LOAM_FIELD("free_granules", MixedPart, free_granules_)
                    LOAM_FIELD("unbacked_pages", MixedPart, unbacked_pages_)
                        LOAM_FIELD("taken", MixedPart, totals_.taken) LOAM_FIELD("given", MixedPart,
                                                                                 totals_.given)(
                            "blocks", __builtin_offsetof(MixedPart, blocks_), 8, kSizeClassCount)
        .next;
  }

  static constexpr CounterField* write_class(CounterField* next, Table table) {
    return Writer{next, table} LOAM_FIELD("bytes", SizeClassInfo, bytes)
        LOAM_FIELD("pages", SizeClassInfo, pages) LOAM_FIELD("slots", SizeClassInfo, slots)
            .next;
  }

  static constexpr CounterField* write_bin(CounterField* next, Table table) {
    return Writer{next, table}
        .lock(__builtin_offsetof(Bin, mutex_)) LOAM_FIELD("spans", Bin, counts_.spans)
            LOAM_FIELD("free_slots", Bin, counts_.free_slots)
                LOAM_FIELD("unbacked_pages", Bin, counts_.unbacked_pages) LOAM_FIELD(
                    "absent_slots", Bin, counts_.absent_slots) LOAM_FIELD("absent_pages", Bin,
                                                                          counts_.absent_pages)
                    LOAM_FIELD("taken", Bin, totals_.taken) LOAM_FIELD("given", Bin, totals_.given)(
                        "queued",
                        __builtin_offsetof(Bin, remote_) + __builtin_offsetof(RemoteQueue, queued_),
                        4) LOAM_FIELD("remote_batches", Bin, totals_.remote_batches)
                        LOAM_FIELD("remote_blocks", Bin, totals_.remote_blocks)(
                            "occupancy", __builtin_offsetof(Bin, occupancy_), 4, Bin::kLists)
                            LOAM_FIELD("empty_spans", Bin, counts_.empty_spans)
        .next;
  }

  static constexpr CounterField* write_caches(CounterField* next) {
    next = Writer{next, kRegistry}
               .lock(__builtin_offsetof(CacheRegistry, mutex_))
                   LOAM_FIELD("threads", CacheRegistry, threads_)
                       LOAM_FIELD("refills", CacheRegistry, ended_refills_)
                           LOAM_FIELD("flushes", CacheRegistry, ended_flushes_)
                               LOAM_FIELD("pushed", CacheRegistry, ended_pushed_)
               .calls(__builtin_offsetof(CacheRegistry, ended_calls_))
               .runs(__builtin_offsetof(CacheRegistry, ended_runs_))
               .next;
    next = Writer{next, kCaches} LOAM_FIELD("refills", ThreadCache, refills_)
               LOAM_FIELD("flushes", ThreadCache, flushes_)
                   LOAM_FIELD("pushed", ThreadCache, checks_.counted_)
                       LOAM_FIELD("until_look", ThreadCache, checks_.until_look_)
                           .calls(__builtin_offsetof(ThreadCache, observed_.calls))
                           .runs(__builtin_offsetof(ThreadCache, runs_) +
                                 __builtin_offsetof(RunCache, counts_))(
                               "run_pages_held",
                               __builtin_offsetof(ThreadCache, runs_) +
                                   __builtin_offsetof(RunCache, held_pages_),
                               8)
                           .next;
    // The offset counts from the head of a class, which the table names: the head's words are not
    // adjacent.
    constexpr size_t heads = __builtin_offsetof(ThreadCache, heads_),
                     bases = __builtin_offsetof(ThreadCache, bases_);
    return Writer{next, kMagazines}("head", 0, sizeof(void**))("base", bases - heads,
                                                               sizeof(void**))
        .next;
  }

  static constexpr CounterField* write_pages(CounterField* next) {
    next =
        Writer{next, kPageHeap}
            .lock(__builtin_offsetof(PageHeap, mutex_)) LOAM_FIELD("reserved_blocks", PageHeap,
                                                                   space_.reserved_slabs_)
                LOAM_FIELD("committed_blocks", PageHeap, space_.committed_slabs_) LOAM_FIELD(
                    "used_pages", PageHeap, used_) LOAM_FIELD("parked_pages", PageHeap,
                                                              standing_spans_.waiting_)
                    LOAM_FIELD("dirty_pages", PageHeap, slabs_.dirty_pages_) LOAM_FIELD(
                        "surplus_pages", PageHeap, slabs_.surplus_.pages_)
                        LOAM_FIELD("peak_used_pages", PageHeap, policy_.peak_) LOAM_FIELD(
                            "fresh_pages", PageHeap,
                            fresh_.runs_) LOAM_FIELD("purge_calls", PageHeap, purges_.calls_)
                            LOAM_FIELD("purged_pages", PageHeap, purges_.pages_) LOAM_FIELD(
                                "purge_ns", PageHeap, purges_.ns_)
                                LOAM_FIELD("refused_calls", PageHeap, purges_.refused_) LOAM_FIELD(
                                    "large_blocks", PageHeap, large_.blocks_)
                                    LOAM_FIELD("large_pages", PageHeap, large_.pages_) LOAM_FIELD(
                                        "large_requested", PageHeap, large_.requested_)
                                        LOAM_FIELD("large_allocs", PageHeap, large_.allocations_)
                                            LOAM_FIELD("idle_mapping_pages", PageHeap,
                                                       mappings_.idle_.pages_)
                                                LOAM_FIELD("idle_mappings", PageHeap,
                                                           mappings_.idle_.count_)
            .next;
    next = Writer{next, kIdleMappings} LOAM_FIELD("address", IdleMappings::Mapping, address)
               LOAM_FIELD("pages", IdleMappings::Mapping, pages)
                   .next;
    next = Writer{next, kRegions} LOAM_FIELD("base", Region, base)
               LOAM_FIELD("extents", Region, extent_count)
                   LOAM_FIELD("spans_used", Region, spans_used)
                       LOAM_FIELD("records_purged", Region, records_purged)
                           LOAM_FIELD("maps_purged", Region, maps_purged)
                               .next;
    next = Writer{next, kExtents} LOAM_FIELD("first_block", Extent, first_slab)
               LOAM_FIELD("block_count", Extent, slab_count)
                   LOAM_FIELD("committed_blocks", Extent, committed_slabs)
                       .next;
    next = Writer{next, kShards}
               .lock(__builtin_offsetof(PageShard, mutex))
                   LOAM_FIELD("parked_pages", PageShard, parked_pages)
               .next;
    return Writer{next, kSlabs}("free", __builtin_offsetof(Slab, free), 8, kPagesPerSlab / 64)(
               "backed", __builtin_offsetof(Slab, backed), 8, kPagesPerSlab / 64)
        LOAM_FIELD("free_pages", Slab, free_pages) LOAM_FIELD("dirty_pages", Slab, dirty_pages)
            .next;
  }

  static constexpr CounterField* write_others(CounterField* next) {
    next = Writer{next, kHuge}
               .lock(__builtin_offsetof(HugeMap, mutex_)) LOAM_FIELD("blocks", HugeMap, count_)
                   LOAM_FIELD("mapped", HugeMap, mapped_bytes_)
                       LOAM_FIELD("requested", HugeMap, requested_bytes_)
                           LOAM_FIELD("peak_mapped", HugeMap, peak_mapped_bytes_)
                               LOAM_FIELD("allocs", HugeMap, allocations_)
                                   LOAM_FIELD("bits", HugeMap, bits_)
               .next;
    next = Writer{next, kHugeBlocks} LOAM_FIELD("address", HugeMap::Entry, address)
               LOAM_FIELD("mapped", HugeMap::Entry, mapped)
                   LOAM_FIELD("requested", HugeMap::Entry, requested)
                       LOAM_FIELD("heap", HugeMap::Entry, heap)
                           .next;
    next = Writer{next, kMetadata}
               .lock(__builtin_offsetof(MetadataArena, mutex_))
                   LOAM_FIELD("used", MetadataArena, held_bytes_)
               .next;
    next = Writer{next, kRemotePool}.lock(__builtin_offsetof(RemotePool, mutex_)).next;
    return Writer{next, kSampler} LOAM_FIELD("rate", Sampler, rate_)
        LOAM_FIELD("live_rounding", Sampler, live_rounding_)
            LOAM_FIELD("followed", Sampler, followed_) LOAM_FIELD("sampled", Sampler, sampled_)
                LOAM_FIELD("lost", Sampler, lost_)
                    LOAM_FIELD("table_bytes", Sampler, blocks_.bytes_)
                        .next;
  }

  static constexpr CounterField* write_private(CounterField* next) {
    next = Writer{next, kPrivateRegistry}.lock(__builtin_offsetof(HeapRegistry, mutex_)).next;
    next = Writer{next, kPrivateHeaps}
               .lock(__builtin_offsetof(PrivateHeap, mutex_)) LOAM_FIELD("generation", PrivateHeap,
                                                                         generation_)(
                   "name", __builtin_offsetof(PrivateHeap, asked_.name), 1, PrivateHeap::kNameBytes)
                   LOAM_FIELD("charged", PrivateHeap, account_.charged) LOAM_FIELD(
                       "peak", PrivateHeap, account_.peak)
                       LOAM_FIELD("maximum", PrivateHeap, account_.maximum) LOAM_FIELD(
                           "records", PrivateHeap, account_.records)
                           LOAM_FIELD("set_aside", PrivateHeap, account_.set_aside) LOAM_FIELD(
                               "large_bytes", PrivateHeap, account_.large_bytes)
                               LOAM_FIELD("large_taken", PrivateHeap, account_.large_taken)
                                   LOAM_FIELD("large_given", PrivateHeap, account_.large_given)
                                       LOAM_FIELD("refills", PrivateHeap, caches_.ended_refills)
                                           LOAM_FIELD("flushes", PrivateHeap, caches_.ended_flushes)
                                               LOAM_FIELD("unbacked_pages", PrivateHeap,
                                                          account_.unbacked_pages)
                                                   LOAM_FIELD("starters", PrivateHeap, mixed_.runs)
                                                       LOAM_FIELD("mixed_pages", PrivateHeap,
                                                                  mixed_.pages)
               .next;
    next = Writer{next, kPrivateBins} LOAM_FIELD("spans", HeapBin, spans)
               LOAM_FIELD("free_slots", HeapBin, free_slots)
                   LOAM_FIELD("in_starters", HeapBin, in_mixed) LOAM_FIELD("taken", HeapBin, taken)
                       LOAM_FIELD("given", HeapBin, given)
                           .next;
    next = Writer{next, kPrivateCaches} LOAM_FIELD("refills", HeapCache, refills)
               LOAM_FIELD("flushes", HeapCache, flushes)
                   .next;
    return Writer{next, kPrivateMagazines} LOAM_FIELD("head", HeapMagazine, head)
        LOAM_FIELD("base", HeapMagazine, base)
            .next;
  }

  // Which blocks there are: for readers that look at each of them.
  static constexpr CounterField* write_details(CounterField* next) {
    next = Writer{next, kSpans}("free_bits", __builtin_offsetof(Span, free_bits), 8, kMaxSlots / 64)
               LOAM_FIELD("run_pages", Span, large.pages) LOAM_FIELD("tables", Span, mixed.tables)(
                   "sealed", __builtin_offsetof(Span, mixed.sealed), 4,
                   sizeof(Span::mixed.sealed) / sizeof(uint32_t))
                   LOAM_FIELD("mixed_absent_pages", Span, mixed.absent_pages)
                       LOAM_FIELD("partial_absent_pages", Span, partial.absent_pages)
                           LOAM_FIELD("private_run", Span, owned.run)
                               LOAM_FIELD("first_page", Span, first_page)
                                   LOAM_FIELD("heap", Span, heap)
                                       LOAM_FIELD("pages", Span, page_count)
                                           LOAM_FIELD("class", Span, size_class)
                                               LOAM_FIELD("kind", Span, kind)
                                                   .next;
    next = Writer{next, kPrivateRuns} LOAM_FIELD("base", HeapRun, base)
               LOAM_FIELD("slot_bytes", HeapRun, slot_bytes)
                   LOAM_FIELD("piece_bytes", HeapRun, piece_bytes)
                       LOAM_FIELD("slots", HeapRun, slots) LOAM_FIELD("use", HeapRun, use)
                           LOAM_FIELD("exact", HeapRun, exact)("states", sizeof(HeapRun), 1)
                               .next;
    // Arrays, because not every system's headers here bring <initializer_list>.
    constexpr Table kRemote[] = {kRemoteBatches, kMoreRemoteBatches};
    for (const Table table : kRemote) {
      next = Writer{next, table} LOAM_FIELD("count", RemoteBatch, count)(
                 "pointers", __builtin_offsetof(RemoteBatch, pointers), 8, RemoteBatch::kPointers)
                 .next;
    }
    constexpr Table kAllStashed[] = {kStashed, kMoreStashed};
    for (const Table table : kAllStashed) {
      next = Writer{next, table} LOAM_FIELD("count", TransferStash::Batch, count)(
                 "pointers", sizeof(TransferStash::Batch), 8, TransferStash::kMostPointers)
                 .next;
    }
    return next;
  }
#undef LOAM_FIELD

  struct AllFields {
    CounterField fields[256];
    unsigned count;
  };
  static constexpr AllFields all_fields() {
    AllFields all{};
    CounterField* end =
        write_private(write_others(write_pages(write_caches(write_small(all.fields)))));
    end = write_details(write_bin(end, kMoreBins));
    if (os::kChargesCommit) end = Writer{end, kCommitCharge}("bytes", 0, sizeof(uint64_t)).next;
    all.count = static_cast<unsigned>(end - all.fields);
    return all;
  }

  struct Directory;
  static constexpr Directory make();
  static void for_each_piece(void (*visit)(void*, const void*, size_t), void* context);
};

// Aligned so that the file's writable part can end where a page does (layout.ld).
struct alignas(64) CounterFields::Directory {
  static constexpr AllFields kAll = all_fields();
  CounterHeader header;
  CounterTable tables[kTables];
  CounterField fields[kAll.count];
};

extern "C" LOAM_EXPORT CounterFields::Directory loam_counters;

constexpr CounterFields::Directory CounterFields::make() {
  Directory d{};
  CounterHeader& h = d.header;
  for (unsigned i = 0; i < 8; ++i) h.magic[i] = "LOAMCNTR"[i];
  h.version = 1;
  h.self = &loam_counters;
  h.recording_version = kRecordingVersion;
  h.trim_version = kTrimVersion;
  h.recording = &recording_request;
  h.detours = &taken_detours;
  h.detour = kRecorded;
  h.header_size = sizeof h;
  h.total_size = sizeof d;
  h.table_size = sizeof(CounterTable);
  h.table_count = kTables;
  h.field_size = sizeof(CounterField);
  h.field_count = Directory::kAll.count;
  for (unsigned i = 0; LOAM_VERSION[i] != '\0'; ++i) h.library[i] = LOAM_VERSION[i];

  using enum TableKind;
  CounterTable* t = d.tables;
  t[kConstants] = table("constant", kRecord, &constants, sizeof constants, 1);
  t[kClasses] = table("class", kArray, kSizeClasses, sizeof kSizeClasses[0], kSizeClassCount);
  t[kBins] = table("bin", kArray, default_small_heap.bins_, sizeof(Bin), kMagazineCount,
                   lock_of(__builtin_offsetof(Bin, mutex_)));
  t[kMixed] = table("mixed", kArray, default_small_heap.mixed_.parts_, sizeof(MixedPart),
                    MixedHeap::kHomes, lock_of(__builtin_offsetof(MixedPart, mutex_)));
  t[kRegistry] = table("registry", kRecord, &cache_registry, sizeof cache_registry, 1,
                       lock_of(__builtin_offsetof(CacheRegistry, mutex_)));
  // A list's head is its first member: list.h says so.
  t[kCaches] = table("cache", kList, &cache_registry.live_, sizeof(ThreadCache), kMaxListed,
                     kNoOffset, __builtin_offsetof(ThreadCache, next));
  t[kMagazines] = inner_table("magazine", kNested, kCaches, __builtin_offsetof(ThreadCache, heads_),
                              sizeof(void**), kMagazineCount);
  t[kPageHeap] = table("page_heap", kRecord, &page_heap, sizeof page_heap, 1,
                       lock_of(__builtin_offsetof(PageHeap, mutex_)));
  t[kRegions] = table("region", kList, &page_heap.space_.regions_, 0, kDirectoryEntries, kNoOffset,
                      __builtin_offsetof(Region, next));
  t[kExtents] = inner_table("extent", kNested, kRegions, __builtin_offsetof(Region, extents),
                            sizeof(Extent), kMaxExtents);
  t[kSlabs] = inner_table("block", kNested, kRegions, __builtin_offsetof(Region, slabs),
                          sizeof(Slab), kSlabsPerRegion);
  t[kShards] = table("page_shard", kArray, page_heap.shards_, sizeof(PageShard), kPageShards,
                     lock_of(__builtin_offsetof(PageShard, mutex)));
  t[kHuge] = table("huge", kRecord, &huge_map, sizeof huge_map, 1,
                   lock_of(__builtin_offsetof(HugeMap, mutex_)));
  t[kHugeBlocks] =
      inner_table("huge_block", kPointed, kHuge, __builtin_offsetof(HugeMap, table_),
                  sizeof(HugeMap::Entry), kMaxListed, __builtin_offsetof(HugeMap, bits_));
  t[kMetadata] = table("metadata", kRecord, &metadata, sizeof metadata, 1,
                       lock_of(__builtin_offsetof(MetadataArena, mutex_)));
  t[kRemotePool] = table("remote_pool", kRecord, &remote_pool, sizeof remote_pool, 1,
                         lock_of(__builtin_offsetof(RemotePool, mutex_)));
  t[kSampler] = table("sampler", kRecord, &sampler, sizeof sampler, 1);
  t[kPrivateRegistry] = table("private_registry", kRecord, &heap_registry, sizeof heap_registry, 1,
                              lock_of(__builtin_offsetof(HeapRegistry, mutex_)));
  t[kPrivateHeaps] = table("private_heap", kList, &heap_registry.heaps_, sizeof(PrivateHeap),
                           kMaxListed, lock_of(__builtin_offsetof(PrivateHeap, mutex_)),
                           __builtin_offsetof(PrivateHeap, next));
  t[kPrivateBins] =
      inner_table("private_bin", kGroup, kPrivateHeaps, __builtin_offsetof(PrivateHeap, groups_),
                  sizeof(HeapBin), kSizeClassCount, HeapBins::kBins);
  t[kPrivateCaches] = inner_table("private_cache", kChain, kPrivateHeaps,
                                  __builtin_offsetof(PrivateHeap, caches_.list), sizeof(HeapCache),
                                  kMaxListed, __builtin_offsetof(HeapCache, next));
  t[kPrivateMagazines] =
      inner_table("private_magazine", kNested, kPrivateCaches,
                  __builtin_offsetof(HeapCache, magazines), sizeof(HeapMagazine), kSizeClassCount);
  t[kMoreBins] =
      table("more_bin", kArray, default_small_heap.more_bins_, sizeof(Bin),
            kMagazineCount * (MixedHeap::kHomes - 1), lock_of(__builtin_offsetof(Bin, mutex_)));
  t[kSplitClasses] = table("split_class", kArray, split_classes.rows_, sizeof(SizeClassInfo),
                           SplitClasses::kMost + 1);
  t[kIdleMappings] = inner_table("idle_mapping", kNested, kPageHeap,
                                 __builtin_offsetof(PageHeap, mappings_.idle_.mappings_),
                                 sizeof(IdleMappings::Mapping), IdleMappings::kMost);
  t[kSpans] = inner_table("span", kDetail, kRegions, __builtin_offsetof(Region, spans),
                          sizeof(Span), kRecordsPerRegion);
  t[kPrivateRuns] = inner_table("private_run", kDetailChain, kSpans,
                                __builtin_offsetof(Span, owned.run), sizeof(HeapRun), 1);
  const auto batches = [](const char* name, Table bins) {
    return inner_table(name, kDetailChain, bins,
                       __builtin_offsetof(Bin, remote_) + __builtin_offsetof(RemoteQueue, head_),
                       sizeof(RemoteBatch), kMaxListed, __builtin_offsetof(RemoteBatch, next));
  };
  t[kRemoteBatches] = batches("remote_batch", kBins);
  t[kMoreRemoteBatches] = batches("more_remote_batch", kMoreBins);
  const auto stashed = [](const char* name, Table bins) {
    return inner_table(name, kDetailChain, bins,
                       __builtin_offsetof(Bin, stash_) + __builtin_offsetof(TransferStash, full_),
                       sizeof(TransferStash::Batch), kMaxListed,
                       __builtin_offsetof(TransferStash::Batch, next));
  };
  t[kStashed] = stashed("stashed", kBins);
  t[kMoreStashed] = stashed("more_stashed", kMoreBins);
  t[kFirstRecords] =
      table("first_records", kDetail, &MetadataArena::first_chunk_, MetadataArena::kFirstChunk, 1);
  if constexpr (os::kChargesCommit) {
    t[kCommitCharge] = table("commit_charge", kRecord, &os::charged_bytes, sizeof(uint64_t), 1);
  }
  for (unsigned i = 0; i < Directory::kAll.count; ++i) d.fields[i] = Directory::kAll.fields[i];
  return d;
}

constinit const Constants CounterFields::constants = make_constants();

// In a section of its own, whose name survives strip(1) where the symbol does not.
extern "C" {
__attribute__((used, section(".loam_counters"))) constinit CounterFields::Directory loam_counters =
    CounterFields::make();
}

void CounterFields::for_each_piece(void (*visit)(void*, const void*, size_t), void* context) {
  const auto piece = [&](const void* address, size_t length) { visit(context, address, length); };
  piece(&loam_counters, sizeof loam_counters);
  piece(&constants, sizeof constants);
  piece(kSizeClasses, sizeof kSizeClasses);
  piece(&split_classes, sizeof split_classes);
  piece(&default_small_heap, sizeof default_small_heap);  // the bins, and the mixed spans' parts
  piece(&cache_registry, sizeof cache_registry);
  for (ThreadCache* c : cache_registry.live_) piece(c, sizeof *c);
  piece(&page_heap, sizeof page_heap);
  for (const Region* r = page_heap.space_.regions_; r != nullptr; r = r->next) {
    const char* begin = reinterpret_cast<const char*>(r->slabs);  // to the last of the scalars
    piece(begin, static_cast<size_t>(reinterpret_cast<const char*>(r->spans) - begin));
  }
  piece(&huge_map, sizeof huge_map);
  if (huge_map.table_ != nullptr) piece(huge_map.table_, sizeof(HugeMap::Entry) << huge_map.bits_);
  piece(&metadata, sizeof metadata);
  piece(&remote_pool, sizeof remote_pool);
  piece(&sampler, sizeof sampler);
  if constexpr (os::kChargesCommit) piece(&os::charged_bytes, sizeof os::charged_bytes);
  piece(&heap_registry, sizeof heap_registry);
  for (PrivateHeap* h : heap_registry.heaps_) {
    piece(h, sizeof *h);
    for (const HeapBins* group : h->groups_) {
      if (group != nullptr) piece(group, sizeof *group);
    }
    for (HeapCache* c : h->caches_.list) piece(c, sizeof *c);
  }
}

void for_each_piece(void (*visit)(void*, const void*, size_t), void* context) {
  CounterFields::for_each_piece(visit, context);
}

const CounterHeader* counter_directory() { return &loam_counters.header; }

}  // namespace loam
