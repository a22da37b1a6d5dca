// What the map knows of a piece of memory: the span record and the block record. Plain data; the
// operations live in the layers that own them (small/, pages/).
//
// Span: one 64-byte line, out of the memory that it describes.
//
//    0        8       16       24       32      40       48      52       56     58  59  60  61  62  63
//   +--------+--------+--------+--------+-------+--------+-------+--------+------+---+---+---+---+---+---+
//   | free bits of up to 256 slots, or  | next  | prev   | first | unback | free | h | p | c | s | k | l |
//   | pages and requested bytes (large) |       |        | page  | mask   | count|   |   |   |   |   |   |
//   +--------+--------+--------+--------+-------+--------+-------+--------+------+---+---+---+---+---+---+
//
// Lock: a small span belongs to its bin's lock, a large one and every block to the page heap's
// lock.
#pragma once

#include <bit>

#include "base/bitmap.h"
#include "base/cpu.h"
#include "base/list.h"
#include "base/units.h"

namespace loam {

inline constexpr unsigned kMaxSlots = 256;         // four words of free bits
inline constexpr unsigned kMaxPartialSlots = 128;  // two, of a span that may be partial
inline constexpr unsigned kMaxSpanPages = 32;      // one bit a page in the mask of unbacked pages

enum class SpanKind : uint8_t {
  kNone = 0,  ///< the record is not in use
  kSmall,     ///< slots of one size class
  kLarge,     ///< one block of whole pages
  kMixed,     ///< was small and sparse; now blocks of any class up to 8 KiB
  kCached,    ///< a freed run that waits as it stands, named by its first page: a thread keeps it
              ///< (cache/run_cache.h), or it is one of a batch in a shard (pages/page_shard.h)
  kParked,    ///< a freed run that waits for the next request of its kind (pages/parked_runs.h)
  kEmpty,     ///< was small; waits as it stands, named by its pages, for the next request of its
              ///< length (page_heap.h)
  kPartial,   ///< as kSmall, but some of its pages are not its own, nor the slots that reach into
              ///< them (small/bin.h)
};

/// Whether runs of that kind have blocks. What waits for the next request may be named by its pages
/// too.
[[nodiscard]] constexpr bool holds_blocks(SpanKind kind) {
  return kind == SpanKind::kSmall || kind == SpanKind::kLarge || kind == SpanKind::kMixed ||
         kind == SpanKind::kPartial;
}

/// Whether they are slots of one size class.
[[nodiscard]] constexpr bool is_cut_into_slots(SpanKind kind) {
  return kind == SpanKind::kSmall || kind == SpanKind::kPartial;
}

/// Span::heap: malloc()'s, or a private heap's; which one stands in the record that `owned.run`
/// names.
inline constexpr uint8_t kDefaultHeap = 0;
inline constexpr uint8_t kPrivateHeap = 1;

/// Whose a small span becomes: Span::heap, and Span::shard.
struct SpanOwner {
  uint8_t heap;
  uint8_t shard;
  constexpr SpanOwner(uint8_t its_heap, uint8_t its_shard = 0) : heap(its_heap), shard(its_shard) {}
};

struct alignas(64) Span : ListLink<Span> {
  union {
    uint64_t free_bits[kMaxSlots / 64];  ///< kSmall: bit set = slot free in the span (not cached)
    struct {
      uint64_t pages;      ///< kLarge, kParked: length of the run
      uint64_t requested;  ///< kLarge: bytes asked for
      uint64_t cached_at;  ///< kCached: since when, by its thread's count. Of a private heap's
                           ///< block: see owned
      uint64_t parked_ms;  ///< kParked: since when
    } large;
    struct {
      uint64_t pages;     ///< of each: large.pages
      uint64_t runs;      ///< how many, this one too
      Span* rest;         ///< the others, linked through `next`
      uint64_t since_ms;  ///< when it came
    } batch;  ///< kCached: the first of a batch that waits in a shard, whose list links it
    struct {
      uintptr_t tables;  ///< kMixed: which granules are free, and where blocks start; or two of its
                         ///< few blocks
      void* shard;       ///< that it is in, and whose lock covers it: a matter of the layer above
      uint32_t absent_pages;  ///< kMixed: as kPartial's
      uint32_t sealed[3];     ///< kMixed without tables: three more
    } mixed;
    struct {
      uint64_t free_bits[kMaxPartialSlots / 64];
      uint64_t own_slots;     ///< kPartial: that lie in its own pages alone
      uint32_t absent_pages;  ///< kPartial: bit set = that page is not its own
      uint32_t unused;
    } partial;
    struct {
      uintptr_t base;     ///< the first slot's address; of a large run `pages` lies here
      uint64_t magazine;  ///< where a cache has the class's magazine, in bytes; of a large run
                          ///< `requested` lies here
      /// The private heap's own record, of a large run too: a matter of the layer above.
      void* run;
      uint32_t reciprocal;  ///< slot of an offset = (offset * reciprocal) >> 32; 0 = not cut into
                            ///< slots of one class
      uint32_t unused;
    } owned;  ///< heap != 0; whose slots of one class these are says owner()
  };
  uint32_t first_page;      ///< number of the first page in the region
  uint32_t unbacked_pages;  ///< kSmall, kMixed: bit set = that page holds no memory: it was given
                            ///< back, or no slot there was used; kEmpty: since when
  uint16_t free_slots;  ///< kSmall: population of free_bits; kMixed: granules in no block, those of
                        ///< absent pages among them
  uint8_t heap;         ///< kDefaultHeap, or kPrivateHeap: see owned
  uint8_t page_count;   ///< kSmall, kMixed
  SizeClass size_class;  ///< kSmall
  uint8_t shard;         ///< kSmall: which of the class's bins it is in, and whose lock covers it
  SpanKind kind;
  uint8_t list;  ///< kSmall, kMixed: the list that holds it; kParked: the number of its place

  /// The last four in one word, the list in its top byte.
  [[nodiscard]] static constexpr LOAM_INLINE uint32_t label_of(SizeClass size_class, uint8_t shard,
                                                               SpanKind kind, uint8_t list) {
    return index_of(size_class) | uint32_t{shard} << 8 | uint32_t(kind) << 16 |
           uint32_t{list} << 24;
  }
  [[nodiscard]] LOAM_INLINE uint32_t label() const {
    static_assert(std::endian::native == std::endian::little,
                  "the first of them is the lowest byte");
    using Word [[gnu::may_alias]] = uint32_t;
    // relaxed: a bin's lock covers them all but the list of a span that has become mixed, which who
    // looks drops
    return __atomic_load_n(reinterpret_cast<const Word*>(&size_class), __ATOMIC_RELAXED);
  }
  /// All four at once: who looks with another bin's lock never takes a span for its own that is
  /// about to be somebody else's.
  LOAM_INLINE void set_label(uint32_t to) {
    using Word [[gnu::may_alias]] = uint32_t;
    __atomic_store_n(reinterpret_cast<Word*>(&size_class), to, __ATOMIC_RELAXED);
  }
  /// Of a live block's span, whoever asks: it stays what it is as long as a block of it is out.
  [[nodiscard]] LOAM_INLINE unsigned bin_shard() const {
    return __atomic_load_n(&shard, __ATOMIC_RELAXED);
  }
  /// Of a mixed span, which a bin may look at by its label.
  void set_list(uint8_t to) { __atomic_store_n(&list, to, __ATOMIC_RELAXED); }

  /// Of a large run, which its thread may keep or take at this moment, while another looks at it
  /// from beside it; and of a small span, which may become mixed while who owns a block of it asks
  /// about that. relaxed: a hint to who does. By its bytes, for not every compiler has atomics of
  /// an enumeration
  [[nodiscard]] SpanKind run_kind() const {
    return SpanKind(__atomic_load_n(reinterpret_cast<const uint8_t*>(&kind), __ATOMIC_RELAXED));
  }
  void set_run_kind(SpanKind to) {
    __atomic_store_n(reinterpret_cast<uint8_t*>(&kind), static_cast<uint8_t>(to), __ATOMIC_RELAXED);
  }

  /// The private heap whose slots of one class these are. Its spans stand in no list, so their
  /// links are free to name it; and what any other span's link names is a span, or null. So one
  /// comparison tells whose a span is. acquire: pairs with the release in own(), before which the
  /// span's other words became the heap's
  [[nodiscard]] const void* owner() const { return __atomic_load_n(&next, __ATOMIC_ACQUIRE); }
  [[nodiscard]] LOAM_INLINE bool is_owned_by(const void* which) const {
    // Other spans' links change under other locks, by plain stores: what is seen of them is
    // compared and dropped, but it is a race to who looks for races.
    if (LOAM_THREAD_SANITIZER && heap != kPrivateHeap) return false;
    return equals_acquire(&next, as_link(which));
  }
  /// null: nobody's any more
  void own(const void* which) { __atomic_store_n(&next, as_link(which), __ATOMIC_RELEASE); }

 private:
  [[nodiscard]] static LOAM_INLINE Span* as_link(const void* which) {
    return static_cast<Span*>(const_cast<void*>(which));
  }
};
static_assert(sizeof(Span) == 64, "a flush touches one line a span");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // no virtual base: it is right
static_assert(__builtin_offsetof(Span, size_class) == 60 && __builtin_offsetof(Span, list) == 63,
              "a label's word");
#pragma GCC diagnostic pop

struct FreeList;   // tag: blocks by their longest free run
struct DirtyList;  // tag: blocks by their longest free and backed run
struct AgeList;    // tag: blocks with free and backed pages, least recently freed into first

enum class BlockState : uint8_t {
  kUncommitted = 0,  ///< reserved address space
  kWhole,            ///< committed, every page free, in the region's set of whole blocks
  kActive,           ///< some pages used (or about to be), in the free index
};

/// Which runs share a block: what lives long together stays together.
enum class RunKind : uint8_t { kSpan = 0, kLarge = 1 };
inline constexpr unsigned kRunKinds = 2;

/// Large runs are parked in one of so many places, each with a lock of its own. Chosen: threads
/// beyond it share; more cost some address space, and a look at each before the heap grows.
inline constexpr unsigned kPageShards = 16;

/// 2 MiB of pages.  dirty = free & backed;  dirty_pages = |dirty|;  free_pages = |free|
struct Block : ListLink<Block, FreeList>, ListLink<Block, DirtyList>, ListLink<Block, AgeList> {
  Bitmap<kPagesPerBlock> free;  ///< bit set = page in no run
  /// Bit set = page may hold memory (it was handed out since its last purge).
  Bitmap<kPagesPerBlock> backed;
  uint16_t free_pages;
  uint16_t dirty_pages;
  uint16_t free_bin;   ///< upper bound of the longest free run; 0 = not in the free index
  uint16_t dirty_bin;  ///< upper bound of the longest dirty run; 0 = not in the dirty index
  uint32_t last_free_ms;
  BlockState state;
  RunKind kind;
  uint8_t shard;  ///< whose lock guards the large runs that are parked in it; set while all of its
                  ///< pages are free
  bool aged : 1;  ///< in the age list
  bool may_be_huge : 1;  ///< huge pages are asked for in it whenever it is taken free and unbacked
};

}  // namespace loam
