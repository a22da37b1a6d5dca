// The map: what is at this address? Two loads, never a fault, for any 64-bit value.
//
//   address --> directory[address >> 30] --> region header --> page_class[page], page_span[page]
//
// A region is 1 GiB of address space whose header lies elsewhere, between inaccessible pages,
// aligned so that a record's own address names its region. Extents (the parts of the region that
// Loam has reserved) may be smaller than the region under a tight RLIMIT_AS.
//
//   header:  | guard | page_class 256 KiB | page_span 1 MiB | free records 32 KiB | blocks | scalars | span records ... | guard
//
// An entry of the directory is where the class byte of the address space's first page would stand,
// if the region's bytes went back so far: whoever has an address adds all of its page number, and
// need not cut out the page's place in its region (decision 49). Zero: no region. Class 0 means:
// not a small block of the default heap, take the slow path.
//
// Writing: page_class and page_span of a page are written only by who owns the run there; readers
// on the free path may look at any time, and see a stable value for every live block.
#pragma once

#include <atomic>

#include "map/directory_entry.h"
#include "map/free_records.h"
#include "map/records.h"

namespace loam {

/// Page-aligned part of a region that Loam reserved; blocks below `committed_blocks` may be used.
struct Extent {
  uint32_t first_block;
  uint32_t block_count;
  uint32_t committed_blocks;
};
inline constexpr unsigned kMaxExtents = 64;

/// Records of a region: one a page, since a run has a page at least, and number 0, which is none.
inline constexpr uint32_t kRecordsPerRegion = kPagesPerRegion + 1;

struct Region {
  uint8_t page_class[kPagesPerRegion];
  /// Record number; 0 = none. A large run sets its first page only. With kFreeRunTag it is no run's
  /// that is in use: the first and the last page of a parked run (pages/parked_runs.h) say so to
  /// what is freed beside them.
  uint32_t page_span[kPagesPerRegion];
  FreeRecords::Bits free_record_bits;  ///< of free_records; touched once a record was given back
  /// By number_of_page(): of the pages that hold records, those that were given back to the system
  /// since all of a page was free. They read as zero, which is what a record of no run is.
  Bitmap<round_up(kRecordsPerRegion * sizeof(Span) / kPageBytes + 2, size_t{64})>
      purged_record_pages;
  /// Free records that a shard of the page heap keeps for its cuts, so that these need no other
  /// lock than the shard's.
  struct alignas(64) Spares {
    uint32_t first;  ///< linked through first_page; 0 = none
    uint32_t count;
  } spares[kPageShards];
  Block blocks[kBlocksPerRegion];
  Bitmap<kBlocksPerRegion> whole;         ///< blocks in state kWhole
  Bitmap<kBlocksPerRegion> whole_backed;  ///< those of them that have dirty pages
  /// Committed blocks whose part of page_class, and of page_span, was given back to the system
  /// while they were whole. It reads as zero, which is what a page of no span has.
  Bitmap<kBlocksPerRegion> purged_classes;
  Bitmap<kBlocksPerRegion> purged_names;
  Extent extents[kMaxExtents];
  uint32_t extent_count;
  uint32_t spans_committed;  ///< records that may be touched
  uint32_t spans_used;       ///< records handed out at least once; record 0 is never used
  uint32_t records_purged;   ///< bytes of purged_record_pages
  uint32_t maps_purged;      ///< bytes of purged_classes and purged_names
  uintptr_t base;            ///< the region's address, a multiple of 1 GiB
  Region* next;
  FreeRecords free_records;  ///< of those that were handed out
  Span spans[kRecordsPerRegion];

  [[nodiscard]] void* page_address(PageId page) const {
    return reinterpret_cast<void*>(base + (static_cast<uintptr_t>(page.index) << kPageShift));
  }
  [[nodiscard]] static PageId page_of(uintptr_t address) {
    return PageId(static_cast<uint32_t>(address >> kPageShift) & (kPagesPerRegion - 1));
  }
  /// Among the pages of the header that hold records.
  [[nodiscard]] unsigned number_of_page(const Span* record) const {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(record) / kPageBytes -
                                 reinterpret_cast<uintptr_t>(spans) / kPageBytes);
  }
  /// pre: the block is one of the region's
  [[nodiscard]] unsigned number_of(const Block* block) const {
    return static_cast<unsigned>(block - blocks);
  }
};

/// Of a region's header for each block of pages, spans' records aside. bytes
inline constexpr size_t kMapBytesPerBlock =
    kPagesPerBlock * (sizeof(Region::page_class[0]) + sizeof(Region::page_span[0])) +
    kPagesPerBlock / 8 + sizeof(Block);

inline constexpr size_t kHeaderAlignment = size_t{32} << 20;
inline constexpr size_t kHeaderGuard = size_t{64} << 10;  // the largest page size of aarch64
inline constexpr size_t kHeaderBytes = round_up(sizeof(Region), kHeaderGuard) + 2 * kHeaderGuard;
static_assert(kHeaderBytes <= kHeaderAlignment, "a record's address names its region");

inline constexpr unsigned kDirectoryEntries = 1u << (kAddressBits - kRegionShift);

extern DirectoryEntry directory[kDirectoryEntries];

/// Set in Region::page_span where a parked run begins or ends.
inline constexpr uint32_t kFreeRunTag = uint32_t{1} << 31;
/// Above the record's number: that of the place where the run is parked. Only who holds the lock of
/// the place may follow the number to the record. So far up that it falls off, as the tag does,
/// where a record's number becomes its place (span_named_at() in private/heap_run.h asserts it).
inline constexpr unsigned kFreeRunListShift = 26;
static_assert(kRecordsPerRegion <= 1u << kFreeRunListShift &&
                  kPageShards < 1u << (31 - kFreeRunListShift),
              "tag, list and record fit 32 bits");

/// Region of a record that lives in one.
[[nodiscard]] LOAM_INLINE Region* region_of(const Span* span) {
  return reinterpret_cast<Region*>((reinterpret_cast<uintptr_t>(span) & ~(kHeaderAlignment - 1)) +
                                   kHeaderGuard);
}
[[nodiscard]] LOAM_INLINE Region* region_of(const Block* block) {
  return region_of(reinterpret_cast<const Span*>(block));
}

/// Region that an address lies in, or null. Any value is answered.
[[nodiscard]] LOAM_INLINE Region* region_at(uintptr_t address) {
  const uintptr_t entry = address >> kRegionShift;
  if (LOAM_UNLIKELY(entry >= kDirectoryEntries)) return nullptr;
  const uintptr_t classes = directory[entry].read();
  if (LOAM_UNLIKELY(classes == 0)) return nullptr;
  Region* region = reinterpret_cast<Region*>(classes + (entry << (kRegionShift - kPageShift)));
  if (region == nullptr) __builtin_unreachable();  // saves callers their test
  return region;
}

/// Size class of the small block of the default heap at `pointer`; kNoClass for everything else,
/// misaligned and wild pointers included.
///
/// Rotating the address right by 4 moves the bits that must be zero (the low four of an aligned
/// pointer) to the top, so one comparison rejects misaligned and non-canonical pointers at once.
[[nodiscard]] LOAM_INLINE size_t class_at(const void* pointer) {
  const uint64_t rotated = rotate_right(reinterpret_cast<uintptr_t>(pointer), 4);
  const uint64_t entry = rotated >> (kRegionShift - 4);
  if (LOAM_UNLIKELY(entry >= kDirectoryEntries)) return 0;
  const uintptr_t classes = directory[entry].read_of_live();
  if (LOAM_UNLIKELY(classes == 0)) return 0;
  return __atomic_load_n(reinterpret_cast<const uint8_t*>(classes + (rotated >> (kPageShift - 4))),
                         __ATOMIC_RELAXED);
}

/// class_at() of an aligned address in that page, and span_at().
[[nodiscard]] LOAM_INLINE unsigned class_in(const Region* region, PageId page) {
  return __atomic_load_n(&region->page_class[page.index], __ATOMIC_RELAXED);
}
[[nodiscard]] LOAM_INLINE Span* span_in(Region* region, PageId page) {
  const uint32_t number = __atomic_load_n(&region->page_span[page.index], __ATOMIC_RELAXED);
  return number - 1 < kRecordsPerRegion - 1 ? &region->spans[number] : nullptr;
}

/// Record of the span that covers the page of `address`, or null. For a large run only its first
/// page answers.
[[nodiscard]] LOAM_INLINE Span* span_at(uintptr_t address) {
  Region* region = region_at(address);
  return LOAM_LIKELY(region != nullptr) ? span_in(region, Region::page_of(address)) : nullptr;
}

/// The parked run of that list that begins or ends at the page; null for everything else.
/// pre: the list's lock is held. Other lists' tags may change meanwhile, but never into one of this
/// list's
[[nodiscard]] LOAM_INLINE Span* free_run_at(Region* region, uint32_t page, unsigned list) {
  const uint32_t tag = __atomic_load_n(&region->page_span[page], __ATOMIC_RELAXED);
  constexpr uint32_t kNumbers = (uint32_t{1} << kFreeRunListShift) - 1;
  return (tag & ~kNumbers) == (kFreeRunTag | list << kFreeRunListShift)
             ? &region->spans[tag & kNumbers]
             : nullptr;
}

/// No span's record: what there is to read where no record is named.
extern const Span no_span;

/// span_at() for many addresses that mostly lie in the region of the one before: the directory is
/// looked at once. An address in no span's pages gets `no_span`, so that who looks at the record's
/// kind anyway needs no other test.
class SpanFinder {
 public:
  [[nodiscard]] LOAM_INLINE Span* at(uintptr_t address) {
    const uintptr_t entry = address >> kRegionShift;
    if (LOAM_UNLIKELY(entry != entry_)) {
      Region* const region = region_at(address);
      if (region == nullptr) return none();
      page_span_ = region->page_span;
      spans_ = region->spans;
      entry_ = entry;
    }
    const uint32_t number =
        __atomic_load_n(&page_span_[Region::page_of(address).index], __ATOMIC_RELAXED);
    return LOAM_LIKELY(number - 1 < kRecordsPerRegion - 1) ? &spans_[number] : none();
  }

 private:
  [[nodiscard]] static Span* none() {
    return const_cast<Span*>(&no_span);
  }  // whose kind lets nobody write to it
  const uint32_t* page_span_ = nullptr;
  Span* spans_ = nullptr;
  uintptr_t entry_ = UINTPTR_MAX;  // of no address
};

[[nodiscard]] LOAM_INLINE uintptr_t span_base(const Span* span) {
  return region_of(span)->base + (static_cast<uintptr_t>(span->first_page) << kPageShift);
}

/// The offset in the span of an address in its pages, without a look at the region: both count from
/// its start.
[[nodiscard]] LOAM_INLINE uint32_t offset_in(const Span* span, const void* address) {
  const uint32_t in_region = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(address));
  return (in_region - (span->first_page << kPageShift)) & (kRegionBytes - 1);
}

/// Makes a header for the region at `base` (a multiple of 1 GiB) and publishes it. Null when memory
/// for the header is refused. pre: no region there yet; the page heap's lock is held
[[nodiscard]] Region* add_region(uintptr_t base);

/// A free span record of the region, zeroed but for its first_page; null when its memory is
/// refused, or none is left: then shards keep some (take_spare_record()), or every page has its
/// own. pre: the page heap's lock is held
[[nodiscard]] Span* take_span_record(Region* region);

/// pre: as take_span_record; no page names the record any more
void return_span_record(Region* region, Span* span);

/// Gives those pages of the header back to the system whose records are all free: one byte in 64 of
/// what the heap's runs were at their peak; so many bytes at most, or one page of the system more.
/// Returns the bytes. O(records handed out / 64). Lock: as take_span_record()
size_t purge_free_records(Region* region, size_t most = SIZE_MAX);

/// Gives those parts of the maps back to the system that are of whole blocks alone without a dirty
/// page, if that are so many blocks or more: five bytes a page, a 819th of what the heap was at its
/// peak. Returns bytes. Lock: as take_span_record()
size_t purge_idle_maps(Region* region, unsigned least);
/// Its pages may be named from here on. Lock: as take_span_record()
LOAM_COLD void note_maps_used(Region* region, unsigned block);

/// For a program that locks its memory. Returns the address space of records that were never used.
void return_reserved_records(Region* region);
/// Visits those parts of the maps, and of the directory, that are of no committed block, and of no
/// region: they read as zero.
using VisitPart = void (*)(void* begin, size_t bytes);
void for_each_idle_map(Region* region, VisitPart visit);
void for_each_idle_directory(const Region* regions, VisitPart visit);
/// The maps' parts are locked as the program wants new memory to be, for blocks that are about to
/// be committed; false if the limit on locked memory is reached.
[[nodiscard]] bool lock_maps(Region* region, unsigned first, unsigned blocks);

/// What is marked as purged is free, and counted. O(records / 64)
[[nodiscard]] bool purged_records_are_valid(const Region* region);
/// ... is of whole blocks and zero, and counted. O(purged bytes), which a look makes resident again
[[nodiscard]] bool purged_maps_are_valid(const Region* region);

/// A record that a shard kept, as it was when it was kept; null when there is none. pre: the
/// shard's lock is held
[[nodiscard]] LOAM_INLINE Span* take_spare_record(Region* region, unsigned shard) {
  Region::Spares& spares = region->spares[shard];
  if (LOAM_UNLIKELY(spares.first == 0)) return nullptr;
  Span* span = &region->spans[spares.first];
  spares.first = span->first_page;
  --spares.count;
  return span;
}

/// pre: the shard's lock is held; no page names the record any more
LOAM_INLINE void keep_spare_record(Region* region, unsigned shard, Span* span) {
  Region::Spares& spares = region->spares[shard];
  span->kind = SpanKind::kNone;
  span->first_page = spares.first;
  spares.first = static_cast<uint32_t>(span - region->spans);
  ++spares.count;
}

/// Names `span` (with class byte `size_class`) as the owner of `pages` pages from its first.
void publish_span(Region* region, Span* span, Pages pages, SizeClass size_class);
/// Some of them, from `first` on.
void publish_pages(Region* region, Span* span, PageId first, Pages pages, SizeClass size_class);
void unpublish_span(Region* region, Span* span, Pages pages);
/// Of a span's pages, those from `first` on.
void unpublish_pages(Region* region, PageId first, Pages pages);

/// The same for a large run: its first page alone names it, and its class byte is 0 as it was. Not
/// written, since other threads' pages share the line. pre: no page of the run names a span
LOAM_INLINE void publish_large(Span* span) {
  Region* region = region_of(span);
  LOAM_ASSERT(__atomic_load_n(&region->page_class[span->first_page], __ATOMIC_RELAXED) == 0);
  __atomic_store_n(&region->page_span[span->first_page],
                   static_cast<uint32_t>(span - region->spans), __ATOMIC_RELAXED);
}
/// Nobody owns the run from here on: a second free finds nothing.
LOAM_INLINE void unpublish_large(Span* span) {
  __atomic_store_n(&region_of(span)->page_span[span->first_page], 0u, __ATOMIC_RELAXED);
}

/// Bytes of the region's header that may be backed: an upper bound from what was handed out.
[[nodiscard]] size_t metadata_bytes(const Region* region);

}  // namespace loam
