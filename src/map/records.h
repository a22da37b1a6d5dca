// What the map knows of a piece of memory: the span record and the slab record. Both are plain
// data; their operations are in the layers that own them (small/, pages/).
//
// Span: one 64-byte line, outside the memory that it describes.
//
//    0       8       16     24     32     40      48      52       56     58  59  60  61  62  63
//   +-------+-------+------+------+------+-------+-------+--------+------+---+---+---+---+---+---+
//   | free bits of up to 256      | next | prev  | first | unback | free | h | p | c | s | k | l |
//   | slots, or pages and         |      |       | page  | mask   | count|   |   |   |   |   |   |
//   | requested bytes (large)     |      |       |       |        |      |   |   |   |   |   |   |
//   +-------+-------+------+------+------+-------+-------+--------+------+---+---+---+---+---+---+
//
// Lock: the bin's lock guards a small span; the page heap's lock guards a large span and every
// slab.
#pragma once

#include <bit>

#include "base/bitmap.h"
#include "base/cpu.h"
#include "base/list.h"
#include "base/units.h"

namespace loam {

inline constexpr unsigned kMaxSlots = 256;         // four words of free bits
inline constexpr unsigned kMaxPartialSlots = 128;  // two words, in a span that may be partial
inline constexpr unsigned kMaxSpanPages = 32;      // one bit a page in the mask of unbacked pages

enum class SpanKind : uint8_t {
  kNone = 0,  ///< the record is not in use
  kSmall,     ///< slots of one size class
  kLarge,     ///< one block of whole pages
  kMixed,     ///< was small and sparse; now blocks of any class up to 8 KiB
  kStanding,  ///< a freed run that is kept unchanged, still named by its pages: a large run in a
              ///< thread's cache (cache/run_cache.h), or in a batch, or an empty span, which alone
              ///< has a size class (pages/standing_runs.h)
  kParked,    ///< a freed run that is kept for the next request of its kind (pages/parked_runs.h)
  kPartial,   ///< as kSmall, but some pages do not belong to the span, nor do the slots that
              ///< reach into them (small/bin.h)
};

/// True if runs of that kind have blocks. A run that is kept for the next request may be named by
/// its pages too, but has none.
[[nodiscard]] constexpr bool holds_blocks(SpanKind kind) {
  return kind == SpanKind::kSmall || kind == SpanKind::kLarge || kind == SpanKind::kMixed ||
         kind == SpanKind::kPartial;
}

/// True if the run's blocks are slots of one size class.
[[nodiscard]] constexpr bool is_cut_into_slots(SpanKind kind) {
  return kind == SpanKind::kSmall || kind == SpanKind::kPartial;
}

/// Values of Span::heap: malloc()'s heap, or a private heap; the record that `owned.run` names says
/// which one.
inline constexpr uint8_t kDefaultHeap = 0;
inline constexpr uint8_t kPrivateHeap = 1;

/// The future owner of a small span: its Span::heap and Span::bin.
struct SpanOwner {
  uint8_t heap;
  uint8_t bin;
  constexpr SpanOwner(uint8_t its_heap, uint8_t its_bin = 0) : heap(its_heap), bin(its_bin) {}
};

struct alignas(64) Span : ListLink<Span> {
  union {
    uint64_t free_bits[kMaxSlots / 64];  ///< kSmall: bit set = slot free in the span (not cached)
    struct {
      uint64_t pages;      ///< kLarge, kParked: length of the run
      uint64_t requested;  ///< kLarge: bytes asked for
      uint64_t cached_at;  ///< kStanding: when its thread kept it, by the thread's count. In a
                           ///< private heap's block: see owned
      uint64_t parked_ms;  ///< kParked: when it was parked
    } large;
    struct {
      uint64_t pages;     ///< of each run: large.pages
      uint64_t runs;      ///< how many runs, this one included
      Span* rest;         ///< the other runs, linked through `next`
      uint64_t since_ms;  ///< when the entry came
    } standing;  ///< kStanding: the first run of a batch; an empty span has only `since_ms`
    struct {
      uintptr_t tables;  ///< kMixed: which granules are free, and where blocks start; or two of its
                         ///< few blocks
      void* part;        ///< its part, whose lock guards it; the layer above knows the type
      uint32_t absent_pages;  ///< kMixed: as in kPartial
      uint32_t sealed[3];     ///< kMixed without tables: three more blocks
    } mixed;
    struct {
      uint64_t free_bits[kMaxPartialSlots / 64];
      uint64_t own_slots;     ///< kPartial: slots that lie wholly in its own pages
      uint32_t absent_pages;  ///< kPartial: bit set = that page is not the span's own
      uint32_t unused;
    } partial;
    struct {
      uintptr_t base;     ///< the first slot's address; in a large run `pages` lies here
      uint64_t magazine;  ///< offset in bytes of the class's magazine in a cache; in a large run
                          ///< `requested` lies here
      /// The private heap's own record, in a large run too; the layer above knows the type.
      void* run;
      uint32_t reciprocal;  ///< slot of an offset = (offset * reciprocal) >> 32; 0 = not cut into
                            ///< slots of one class
      uint32_t unused;
    } owned;  ///< heap != 0; owner() names the private heap of slots of one class
  };
  uint32_t first_page;      ///< number of the first page in the region
  uint32_t unbacked_pages;  ///< kSmall, kMixed: bit set = that page holds no memory: it was given
                            ///< back, or no slot there was used
  uint16_t free_slots;  ///< kSmall: population of free_bits; kMixed: granules in no block, those of
                        ///< absent pages included
  uint8_t heap;         ///< kDefaultHeap, or kPrivateHeap: see owned
  uint8_t page_count;   ///< kSmall, kMixed
  SizeClass size_class;  ///< kSmall
  uint8_t bin;  ///< kSmall: the number of its bin among the class's bins; that bin's lock guards it
  SpanKind kind;
  uint8_t list;  ///< kSmall, kMixed: the list that holds it; kParked: the number of its list of
                 ///< parked runs

  /// The last four fields in one word, the list in its top byte.
  [[nodiscard]] static constexpr LOAM_INLINE uint32_t label_of(SizeClass size_class, uint8_t bin,
                                                               SpanKind kind, uint8_t list) {
    return index_of(size_class) | uint32_t{bin} << 8 | uint32_t(kind) << 16 | uint32_t{list} << 24;
  }
  [[nodiscard]] LOAM_INLINE uint32_t label() const {
    static_assert(std::endian::native == std::endian::little,
                  "the first of them is the lowest byte");
    using Word [[gnu::may_alias]] = uint32_t;
    // relaxed: a bin's lock guards all four fields, except the list of a span that has become
    // mixed. Readers without the lock ignore the list
    return __atomic_load_n(reinterpret_cast<const Word*>(&size_class), __ATOMIC_RELAXED);
  }
  /// Writes all four at once: a reader under another bin's lock then never mistakes a span that is
  /// changing its owner for its own.
  LOAM_INLINE void set_label(uint32_t to) {
    using Word [[gnu::may_alias]] = uint32_t;
    __atomic_store_n(reinterpret_cast<Word*>(&size_class), to, __ATOMIC_RELAXED);
  }
  /// Any thread may call this for the span of a live block: the bin does not change while a block
  /// of the span is live.
  [[nodiscard]] LOAM_INLINE unsigned bin_number() const {
    return __atomic_load_n(&bin, __ATOMIC_RELAXED);
  }
  /// Another thread may read the label meanwhile: a bin, or the check of a freed pointer.
  void set_list(uint8_t to) { __atomic_store_n(&list, to, __ATOMIC_RELAXED); }

  /// Read without a lock: another thread may be caching or reusing this large run now, or this
  /// small span may become mixed now. Callers use the result only as a hint, so relaxed suffices.
  /// It is read as a byte, for not every compiler has atomics of an enumeration
  [[nodiscard]] SpanKind run_kind() const {
    return SpanKind(__atomic_load_n(reinterpret_cast<const uint8_t*>(&kind), __ATOMIC_RELAXED));
  }
  void set_run_kind(SpanKind to) {
    __atomic_store_n(reinterpret_cast<uint8_t*>(&kind), static_cast<uint8_t>(to), __ATOMIC_RELAXED);
  }

  /// The private heap that owns this span of slots of one class. Such spans are in no list, so
  /// `next` is free to name the heap. In any other span it names a span, or is null. So one
  /// comparison tells the owner. acquire: pairs with the release in own(), before which the span's
  /// other words became the heap's
  [[nodiscard]] const void* owner() const { return __atomic_load_n(&next, __ATOMIC_ACQUIRE); }
  [[nodiscard]] LOAM_INLINE bool is_owned_by(const void* which) const {
    // Links of other spans change under other locks, by plain stores. Their values are only
    // compared and dropped here, but ThreadSanitizer reports a race.
    if (LOAM_THREAD_SANITIZER && heap != kPrivateHeap) return false;
    return equals_acquire(&next, as_link(which));
  }
  /// null: the span has no owner any more
  void own(const void* which) { __atomic_store_n(&next, as_link(which), __ATOMIC_RELEASE); }

 private:
  [[nodiscard]] static LOAM_INLINE Span* as_link(const void* which) {
    return static_cast<Span*>(const_cast<void*>(which));
  }
};
static_assert(sizeof(Span) == 64, "a flush touches one line a span");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // no virtual base, so it is right
static_assert(__builtin_offsetof(Span, size_class) == 60 && __builtin_offsetof(Span, list) == 63,
              "a label's word");
#pragma GCC diagnostic pop

struct FreeList;   // tag: slabs by their longest free run
struct DirtyList;  // tag: slabs by their longest free and backed run
struct AgeList;    // tag: slabs with free and backed pages, least recently freed into first

enum class SlabState : uint8_t {
  kUncommitted = 0,  ///< reserved address space
  kWhole,            ///< committed, every page free, in the region's set of whole slabs
  kActive,           ///< some pages used (or about to be), in the free index
};

/// Which runs share a slab: runs of one kind live about as long, and so stay together.
enum class RunKind : uint8_t { kSpan = 0, kLarge = 1 };
inline constexpr unsigned kRunKinds = 2;

/// Number of places where large runs are parked, each with a lock of its own. Chosen: further
/// threads share a place; more places cost some address space, and a look at each before the heap
/// grows.
inline constexpr unsigned kPageShards = 16;

/// 512 pages, 2 MiB.  dirty = free & backed;  dirty_pages = |dirty|;  free_pages = |free|
struct Slab : ListLink<Slab, FreeList>, ListLink<Slab, DirtyList>, ListLink<Slab, AgeList> {
  Bitmap<kPagesPerSlab> free;  ///< bit set = the page is in no run
  /// Bit set = the page may hold memory (it was handed out since its last purge).
  Bitmap<kPagesPerSlab> backed;
  uint16_t free_pages;
  uint16_t dirty_pages;
  uint16_t free_bin;   ///< upper bound of the longest free run; 0 = not in the free index
  uint16_t dirty_bin;  ///< upper bound of the longest dirty run; 0 = not in the dirty index
  uint32_t last_free_ms;
  SlabState state;
  RunKind kind;
  uint8_t shard;  ///< its lock guards the large runs that are parked in the slab; set while all of
                  ///< its pages are free
  bool huge;  ///< a huge page was asked for: its pages that are not `backed` may hold memory too.
              ///< keep_small_pages() reads it without the lock
};

}  // namespace loam
