// One of the parts of the mixed heap (mixed_heap.h), with a lock of its own. A mixed span is a
// sparse span of one size class whose free slots are open to blocks of every class up to 8 KiB, or
// a run of free pages that was too short for a span. Neighbouring free granules are one range, and
// any class cuts blocks from it. Whole free pages may go to the page heap.
//
//   granules (16 bytes):   0   1   2   3   4   5   6   7   8   9
//   free                   .   .   1   1   1   .   .   .   .   1     1: in no block
//   start                  1   .   .   .   .   1   .   1   .   .     1: a block begins
//
//   a block reaches from its start to the next start or free granule: the two tables give its size
//   a page that no longer belongs to the span (Span::mixed.absent_pages) is one block, which is
//   never handed out
//   free_slots of a span = population of `free` + granules of absent pages
//   start and free are disjoint
//   a span names its part from the moment it is mixed until its pages go back, and stays in it
//
// The start bit detects every double free, and every pointer into a block.
//
// Lock: mutex(); functions named *_locked need it. Below the bins' locks and above the page heap's;
// a thread that holds one part's lock takes no other part's, except all of them in order.
#pragma once

#include "base/bin_set.h"
#include "base/cpu.h"
#include "base/locked_count.h"
#include "map/page_map.h"
#include "os/mutex.h"
#include "pages/page_heap.h"
#include "small/crowding.h"
#include "small/idle_slots.h"
#include "small/mixed_tables.h"
#include "small/refill.h"

namespace loam {

struct MixedStats {
  size_t spans;
  size_t span_bytes;
  size_t free_bytes;
  size_t unbacked_pages;
  uint64_t converted;  ///< spans converted since the start
  uint64_t taken;      ///< blocks, also those that came with a converted span
  uint64_t given;
  unsigned parts;  ///< in use
};

/// Purges pages of a span without live blocks (a mask), in whole pages of the system, and marks
/// them unbacked. Returns how many. pre: the lock that covers the span's record is held
Pages purge_idle_pages(Span* span, uint32_t idle);

class alignas(128) MixedPart {
 public:
  constexpr MixedPart() = default;

  static constexpr size_t kLargestBlock = kLargestMixedBlock;

  /// The most blocks that are given at once. Chosen: their records and tables take a third of a
  /// first-level cache.
  static constexpr unsigned kPiece = 64;

  /// The blocks that a thread prefers to keep when it gives blocks, to hand them out again
  /// unchanged; and the blocks that it kept.
  struct Kept {
    uint8_t wanted[class_for(kLargestBlock) + 1];  ///< blocks, by class
    uint8_t count;
    uint8_t size_class[kPiece];
    void* block[kPiece];
  };

  enum class From : uint8_t {
    kSpans,   ///< mixed spans as they are
    kBacked,  ///< and runs of dirty pages too short for a span of the class, if many wait: they
              ///< become mixed spans
    kLent,    ///< and such runs, however few wait
  };
  /// Adds blocks to the refill, as a bin does. Returns how many.
  unsigned take_locked(PageHeap& pages, Refill& refill, From from);

  /// Takes blocks back whose spans were looked up before. A pointer at which no block of a mixed
  /// span begins is a misuse; it is reported and dropped. Blocks that `kept` wants stay live and
  /// are added to it, if there is a `kept`. Pointers that lie in no span of this part, or not in
  /// the span that was found, are moved to the front. Returns the number of these. pre: count <=
  /// kPiece
  [[nodiscard]] unsigned give_locked(PageHeap& pages, void** pointers, Span** spans, unsigned count,
                                     Kept* kept);

  /// Prefetches the line of the tables that give_locked() reads. It is only a hint, so the record
  /// may have changed meanwhile.
  static inline void ask_for_tables(const Span* span, const void* pointer);

  /// Makes a small span mixed. False when memory for its tables is refused; the span is then
  /// unchanged. `lent`: as in MixedHeap::convert(). pre: the lock of the span's bin is held and the
  /// span is in none of its lists; slots <= kLargestBlock
  [[nodiscard]] bool convert(PageHeap& pages, Span* span, Pages* lent);

  /// Bytes of the block at `address`, 0 when none begins there. pre: the span is in this part and
  /// covers the address
  [[nodiscard]] static size_t block_bytes_locked(const Span* span, uintptr_t address);
  /// Whether the span is in this part now.
  [[nodiscard]] bool holds_locked(const Span* span) const {
    return span->kind == SpanKind::kMixed && span->mixed.part == this;
  }

  /// Purges the free pages inside mixed spans, and frees the tables of spans that need none for
  /// now. Returns how many pages.
  Pages compact_locked();

  /// Gives the page heap whole free pages of mixed spans for the next request: about `wanted`, of a
  /// bounded number of spans. Returns how many.
  Pages lend_locked(PageHeap& pages, Pages wanted);
  /// True while more is free than should be kept unwatched, as Bin::is_watched().
  [[nodiscard]] bool is_watched() {
    idle_.settle(backed_bytes());
    return idle_.watched();
  }
  void end_period_locked();
  /// As Bin::fallen_bytes_hint() and begin_fall_locked(), for lend_unwanted_locked().
  [[nodiscard]] size_t fallen_bytes_hint() const;
  void begin_fall_locked() {
    idle_.begin_fall(free_granules_);
    search_below(kLists);
  }
  /// As lend_locked(), but only as many pages as were free and unwanted. `looks`: as in
  /// Bin::purge_unwanted_locked(). The page heap purges these pages if no request takes them.
  [[nodiscard]] unsigned lend_unwanted_locked(PageHeap& pages, unsigned looks);
  /// The most bytes that lend_locked() could bring: those of free ranges. Takes no lock. Zero
  /// unless a good part is free.
  [[nodiscard]] size_t lendable_bytes_hint() const;

  /// True, once in a while, if threads contend for the lock so often that there should be more
  /// parts.
  [[nodiscard]] bool is_crowded_locked() { return crowding_.is_crowded_locked(mutex_); }

  void add_stats_locked(MixedStats* sum) const;
  /// Blocks of the class in mixed spans: live or in magazines.
  [[nodiscard]] size_t blocks_locked(unsigned size_class) const { return blocks_[size_class]; }
  [[nodiscard]] bool is_valid_locked() const;
  [[nodiscard]] Mutex& mutex() { return mutex_; }
  /// The lock that the caller of give_locked() holds beside this one's; null for none. It is left
  /// after this one's, so the process is aborted behind it.
  void set_outer(Mutex* outer) { outer_ = outer; }
  [[nodiscard]] const Mutex& mutex() const { return mutex_; }
  /// Whether there is a free range that holds a block of the class. A guess without the lock. pre:
  /// size_class <= kLists
  [[nodiscard]] bool may_serve(unsigned size_class) const {
    return occupied_.find_set(size_class - 1) != kNoList;
  }

  /// One list for each class that mixed spans serve.
  static constexpr unsigned kLists = kLargestMixedClass;

 private:
  friend struct CounterFields;

  void open(Span* span, void* tables, uint32_t absent);
  bool add_backed(PageHeap& pages, unsigned size_class, From from);
  void place(Span* span, unsigned level);
  void unlink(Span* span);
  unsigned carve(Span* span, unsigned granules, void** next, unsigned wanted);
  void refuse(const Span* span, const void* pointer);
  void move(Span* const* spans, const uint8_t* levels, unsigned count, Span** gone);
  void release(PageHeap& pages, Span* gone);
  void seal(Span* span);
  bool unseal(Span* span);
  unsigned free_sealed(Span* span, unsigned first);
  Pages lend_pages(PageHeap& pages, Span* span);
  Pages lend_front(PageHeap& pages, unsigned list);
  void search_below(unsigned list);
  void note_free(PageHeap& pages);
  /// The bytes of free ranges on backed pages, about.
  [[nodiscard]] size_t backed_bytes() const {
    const size_t free = free_granules_ << kGranuleShift, gone = Pages(unbacked_pages_).bytes();
    return free > gone ? free - gone : 0;
  }
  [[nodiscard]] Pages unwanted_pages() const {
    return Pages(idle_.unwanted_slots() / kGranulesPerPage);
  }

  Mutex mutex_;
  static constexpr unsigned kNoList = (kLists + 63) / 64 * 64;
  BinSet<kNoList> occupied_;  // those of lists_ that are not empty
  List<Span> lists_[kLists];  // [k]: the longest free range holds a block of class k + 1 at most
  List<Span> full_;
  size_t spans_ = 0;
  // lendable_bytes_hint() reads these without the lock. They count the spans' own pages.
  LockedCount span_pages_;
  LockedCount free_granules_;
  LockedCount unbacked_pages_;
  IdleSlots idle_;  // of granules
  // Where lend_unwanted_locked() continues: the number of the list plus 1, up to the span below; 0
  // = there is nothing to do.
  uint8_t list_to_search_ = 0;
  Span* last_to_search_ = nullptr;
  struct {
    uint64_t converted = 0;
    uint64_t taken = 0;
    uint64_t given = 0;
  } totals_;  // as in MixedStats
  Crowding crowding_;
  size_t blocks_[kSizeClassCount] = {};
  Mutex* outer_ = nullptr;
};

LOAM_INLINE void MixedPart::ask_for_tables(const Span* span, const void* pointer) {
  const uintptr_t tables = __atomic_load_n(&span->mixed.tables, __ATOMIC_RELAXED);
  const uintptr_t line = tables + (offset_in(span, pointer) >> kPageShift) * kCacheLine;
  prefetch_for_write(reinterpret_cast<const void*>(line));
}

}  // namespace loam
