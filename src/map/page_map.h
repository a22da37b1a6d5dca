// The map: what is at this address? Two loads, never a fault, for any 64-bit value.
//
//   address --> directory[address >> 30] --> region header --> page_class[page], page_span[page]
//
// A region is 1 GiB of address space. Its header lies elsewhere, between inaccessible pages, and is
// aligned so that a record's own address names its region. Extents (the parts of the region that
// Loam has reserved) may be smaller than the region under a tight RLIMIT_AS.
//
//   header:  | guard | page_class 256 KiB | page_span 1 MiB | free records 32 KiB | slabs |
//            | scalars | span records ... | guard |
//
// An entry of the directory is the address where the class byte of the address space's first page
// would stand, if the region's bytes reached back so far. So a reader adds an address's whole page
// number, and need not cut out the page's index in its region (decision 44). Zero means no region.
// Class 0 means: not a small block of the default heap, take the slow path.
//
// Writing: only the owner of the run at a page writes the page's page_class and page_span. A reader
// on the free path may look at any time, and sees a stable value for every live block.
#pragma once

#include <atomic>

#include "map/directory_entry.h"
#include "map/free_records.h"
#include "map/records.h"

namespace loam {

/// Page-aligned part of a region that Loam reserved; slabs below `committed_slabs` may
/// be used.
struct Extent {
  uint32_t first_slab;
  uint32_t slab_count;
  uint32_t committed_slabs;
};
inline constexpr unsigned kMaxExtents = 64;

/// Records of a region: one for each page, since a run has at least one page, and number 0, which
/// means none.
inline constexpr uint32_t kRecordsPerRegion = kPagesPerRegion + 1;

struct Region {
  uint8_t page_class[kPagesPerRegion];
  /// Record number; 0 = none. A large run sets the entry of its first page only. With kFreeRunTag
  /// the page is the first or the last one of a parked run (pages/parked_runs.h); the frees of
  /// neighbouring runs find the parked run by it.
  uint32_t page_span[kPagesPerRegion];
  FreeRecords::Bits
      free_record_bits;  ///< of free_records; untouched until the first record is given back
  /// Indexed by number_of_page(): pages of records that were given back to the system because all
  /// their records were free. They read as zero, which is the content of an unused record.
  Bitmap<round_up(kRecordsPerRegion * sizeof(Span) / kPageBytes + 2, size_t{64})>
      purged_record_pages;
  /// Free records that a shard of the page heap keeps, so that a cut of a run needs no lock but the
  /// shard's.
  struct alignas(64) Spares {
    uint32_t first;  ///< linked through first_page; 0 = none
    uint32_t count;
  } spares[kPageShards];
  Slab slabs[kSlabsPerRegion];
  Bitmap<kSlabsPerRegion> whole;         ///< slabs in state kWhole
  Bitmap<kSlabsPerRegion> whole_backed;  ///< slabs of `whole` that have dirty pages
  /// Committed slabs whose part of page_class, and of page_span, was given back to the system
  /// while they were whole. It reads as zero, which is the entry of a page without a span.
  Bitmap<kSlabsPerRegion> purged_classes;
  Bitmap<kSlabsPerRegion> purged_names;
  Extent extents[kMaxExtents];
  uint32_t extent_count;
  uint32_t spans_committed;  ///< records that may be touched
  uint32_t spans_used;       ///< records handed out at least once; record 0 is never used
  uint32_t records_purged;   ///< bytes of purged_record_pages
  uint32_t maps_purged;      ///< bytes of purged_classes and purged_names
  uintptr_t base;            ///< the region's address, a multiple of 1 GiB
  Region* next;
  FreeRecords free_records;  ///< of the records that were handed out at least once
  Span spans[kRecordsPerRegion];

  [[nodiscard]] void* page_address(PageId page) const {
    return reinterpret_cast<void*>(base + (static_cast<uintptr_t>(page.index) << kPageShift));
  }
  [[nodiscard]] static PageId page_of(uintptr_t address) {
    return PageId(static_cast<uint32_t>(address >> kPageShift) & (kPagesPerRegion - 1));
  }
  /// The page's number among the header's pages of records.
  [[nodiscard]] unsigned number_of_page(const Span* record) const {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(record) / kPageBytes -
                                 reinterpret_cast<uintptr_t>(spans) / kPageBytes);
  }
  /// pre: the slab is one of the region's
  [[nodiscard]] unsigned number_of(const Slab* slab) const {
    return static_cast<unsigned>(slab - slabs);
  }
};

/// Bytes of a region's header for each slab, without the spans' records.
inline constexpr size_t kMapBytesPerSlab =
    kPagesPerSlab * (sizeof(Region::page_class[0]) + sizeof(Region::page_span[0])) +
    kPagesPerSlab / 8 + sizeof(Slab);

inline constexpr size_t kHeaderAlignment = size_t{32} << 20;
inline constexpr size_t kHeaderGuard = size_t{64} << 10;  // the largest page size of aarch64
inline constexpr size_t kHeaderBytes = round_up(sizeof(Region), kHeaderGuard) + 2 * kHeaderGuard;
static_assert(kHeaderBytes <= kHeaderAlignment, "a record's address names its region");

inline constexpr unsigned kDirectoryEntries = 1u << (kAddressBits - kRegionShift);

extern DirectoryEntry directory[kDirectoryEntries];

/// Set in Region::page_span where a parked run begins or ends.
inline constexpr uint32_t kFreeRunTag = uint32_t{1} << 31;
/// Above the record's number stands the number of the place where the run is parked. Only a holder
/// of the place's lock may follow the number to the record. The bits lie so high that they drop
/// out, as the tag does, where a record's number becomes its address (span_named_at() in
/// private/heap_run.h asserts it).
inline constexpr unsigned kFreeRunListShift = 26;
static_assert(kRecordsPerRegion <= 1u << kFreeRunListShift &&
                  kPageShards < 1u << (31 - kFreeRunListShift),
              "tag, list and record fit 32 bits");

/// Region of a record that lies in a region.
[[nodiscard]] LOAM_INLINE Region* region_of(const Span* span) {
  return reinterpret_cast<Region*>((reinterpret_cast<uintptr_t>(span) & ~(kHeaderAlignment - 1)) +
                                   kHeaderGuard);
}
[[nodiscard]] LOAM_INLINE Region* region_of(const Slab* slab) {
  return region_of(reinterpret_cast<const Span*>(slab));
}

/// Region of an address, or null. Any value is answered.
[[nodiscard]] LOAM_INLINE Region* region_at(uintptr_t address) {
  const uintptr_t entry = address >> kRegionShift;
  if (LOAM_UNLIKELY(entry >= kDirectoryEntries)) return nullptr;
  const uintptr_t classes = directory[entry].read();
  if (LOAM_UNLIKELY(classes == 0)) return nullptr;
  Region* region = reinterpret_cast<Region*>(classes + (entry << (kRegionShift - kPageShift)));
  if (region == nullptr) __builtin_unreachable();  // saves the callers a test
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

/// The same as class_at(), for an aligned address in that page; and span_at() likewise.
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

/// The parked run of that list that begins or ends at the page; null for every other page. pre: the
/// list's lock is held. Tags of other lists may change meanwhile, but never into a tag of this list
[[nodiscard]] LOAM_INLINE Span* free_run_at(Region* region, uint32_t page, unsigned list) {
  const uint32_t tag = __atomic_load_n(&region->page_span[page], __ATOMIC_RELAXED);
  constexpr uint32_t kNumbers = (uint32_t{1} << kFreeRunListShift) - 1;
  return (tag & ~kNumbers) == (kFreeRunTag | list << kFreeRunListShift)
             ? &region->spans[tag & kNumbers]
             : nullptr;
}

/// The record that is read where no record is named; it belongs to no span.
extern const Span no_span;

/// span_at() for many addresses, most of which lie in the same region as the address before: the
/// directory is read once for those. An address outside spans gets `no_span`, so a caller that
/// reads the record's kind anyway needs no other test.
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
  }  // its kind keeps callers from writing to it
  const uint32_t* page_span_ = nullptr;
  Span* spans_ = nullptr;
  uintptr_t entry_ = UINTPTR_MAX;  // the value for no address
};

[[nodiscard]] LOAM_INLINE uintptr_t span_base(const Span* span) {
  return region_of(span)->base + (static_cast<uintptr_t>(span->first_page) << kPageShift);
}

/// The offset in its span of an address in the span's pages. The region is not read: both count
/// from its start.
[[nodiscard]] LOAM_INLINE uint32_t offset_in(const Span* span, const void* address) {
  const uint32_t in_region = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(address));
  return (in_region - (span->first_page << kPageShift)) & (kRegionBytes - 1);
}

/// Makes a header for the region at `base` (a multiple of 1 GiB) and publishes it. Null when memory
/// for the header is refused. pre: no region there yet; the page heap's lock is held
[[nodiscard]] Region* add_region(uintptr_t base);

/// Takes a free span record of the region, zeroed except for its first_page. Null when the system
/// refuses its memory, or when none is left: then shards keep some (take_spare_record()), or every
/// page has a record. pre: the page heap's lock is held
[[nodiscard]] Span* take_span_record(Region* region);

/// pre: as take_span_record; no page names the record any more
void return_span_record(Region* region, Span* span);

/// Purges the pages of the header whose records are all free, until it has purged `most` bytes or
/// more. It exceeds `most` by at most one page of the system. The records take one byte in 64 of
/// the peak of the heap's runs. Returns the bytes. O(records handed out / 64). Lock: as
/// take_span_record()
size_t purge_free_records(Region* region, size_t most = SIZE_MAX);

/// Purges the parts of the maps that describe only whole slabs without a dirty page, if these are
/// `least` slabs or more. The maps take five bytes a page, one 819th of the heap's peak. Returns
/// the bytes. Lock: as take_span_record()
size_t purge_idle_maps(Region* region, unsigned least);
/// Call before the slab's pages are named. Lock: as take_span_record()
LOAM_COLD void note_maps_used(Region* region, unsigned slab);

/// Returns the address space of records that were never used; for a program that locks its memory.
void return_reserved_records(Region* region);
/// Visits the parts of the maps that describe no committed slab, and the parts of the directory
/// without a region: they read as zero.
using VisitPart = void (*)(void* begin, size_t bytes);
void for_each_idle_map(Region* region, VisitPart visit);
void for_each_idle_directory(const Region* regions, VisitPart visit);
/// Locks the maps' parts for slabs that are about to be committed, as the program wants new memory
/// to be locked. False if the limit on locked memory is reached.
[[nodiscard]] bool lock_maps(Region* region, unsigned first, unsigned slabs);

/// True if every purged page of records holds only free records, and all are counted. O(records /
/// 64)
[[nodiscard]] bool purged_records_are_valid(const Region* region);
/// True if every purged part of the maps describes whole slabs and is zero, and all are counted.
/// O(purged bytes), which the look makes resident again
[[nodiscard]] bool purged_maps_are_valid(const Region* region);

/// A record that the shard kept, unchanged since; null when there is none. pre: the shard's lock is
/// held
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
/// Names `span` as the owner of some of its pages, from `first` on.
void publish_pages(Region* region, Span* span, PageId first, Pages pages, SizeClass size_class);
void unpublish_span(Region* region, Span* span, Pages pages);
/// Unpublishes a span's pages from `first` on.
void unpublish_pages(Region* region, PageId first, Pages pages);

/// The same for a large run: only its first page names it. Its class byte is 0 already and is not
/// written, since other threads' pages share the cache line. pre: no page of the run names a span
LOAM_INLINE void publish_large(Span* span) {
  Region* region = region_of(span);
  LOAM_ASSERT(__atomic_load_n(&region->page_class[span->first_page], __ATOMIC_RELAXED) == 0);
  __atomic_store_n(&region->page_span[span->first_page],
                   static_cast<uint32_t>(span - region->spans), __ATOMIC_RELAXED);
}
/// Removes the run's name, so that a second free finds no block there.
LOAM_INLINE void unpublish_large(Span* span) {
  __atomic_store_n(&region_of(span)->page_span[span->first_page], 0u, __ATOMIC_RELAXED);
}

/// Bytes of the region's header that may be backed: an upper bound, computed from the records and
/// blocks handed out.
[[nodiscard]] size_t metadata_bytes(const Region* region);

}  // namespace loam
