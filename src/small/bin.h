// One size class of one heap: its spans by occupancy, fullest first.
//
//   lists_[k] holds the spans with 0 < free slots whose share of used slots is in [k/8, (k+1)/8)
//   full spans are in no list; every other span is in exactly one
//   slots of all spans = counts_.free_slots + slots handed out (in magazines, in remote batches, in
//   the stash, or live)
//
// Slots are taken from the fullest span, so the emptier spans drain and go back whole. Every step
// is O(1) a slot, and there is no search. So the hundredth round is as fast as the first.
//
// Lock: mutex(); functions named *_locked need it. Above the page heap's lock in the order.
#pragma once

#include <atomic>

#include "base/locked_count.h"
#include "map/page_map.h"
#include "os/mutex.h"
#include "pages/page_heap.h"
#include "small/crowding.h"
#include "small/idle_slots.h"
#include "small/mixed_heap.h"
#include "small/refill.h"
#include "small/remote_queue.h"
#include "small/split_classes.h"
#include "small/transfer_stash.h"

namespace loam {

struct BinStats {
  size_t spans;
  size_t slots;
  size_t free_slots;      ///< in spans: neither live, nor cached, nor in a remote batch
  size_t unbacked_pages;  ///< of live spans: purged pages, or pages not used yet
  size_t absent_slots;    ///< of partial spans: neither free nor handed out
  size_t absent_pages;
  uint64_t taken;  ///< slots handed to caches since the start
  uint64_t given;  ///< slots that were given back
  size_t queued;   ///< slots in the remote queue and in the stash
  uint64_t remote_batches;
  uint64_t remote_blocks;  ///< slots that came in these batches
  uint64_t lock_acquisitions;
  uint64_t lock_contentions;
  uint64_t lock_refusals;  ///< flushes that went to the remote queue instead of waiting
  uint32_t occupancy[8];   ///< spans by used share, empty ones in [0]; full spans are in none
};

class Bin {
 public:
  static constexpr unsigned kLists = 8;
  /// The lists of spans that are free by a quarter or more. These spans become mixed, and lend
  /// pages. Chosen: with half, most spans of a bin of which a phase freed half would not count
  /// (decision 43).
  static constexpr unsigned kSparseLists = kLists * 3 / 4;

  constexpr Bin() = default;

  /// Where the bin takes new spans from when its own have no free slot.
  enum class From : uint8_t {
    kBacked,     ///< backed runs of a span's length
    kShortRuns,  ///< and, where there is none, the longest that has room for a slot
                 ///< (partial_span.h)
    kAnywhere,   ///< and runs that are not backed yet
  };
  /// Adds slots of the fullest spans to the refill, the lowest address on top of the others.
  /// Returns how many: none when the system refuses memory, or when `from` has no memory to offer.
  unsigned take_locked(PageHeap& pages, Refill& refill, From from = From::kAnywhere);

  /// Takes slots back. A slot that is already free is a misuse. So is a pointer into a slot's
  /// middle, to another class or to no block. A misuse is reported, and the pointer is dropped.
  /// Slots of a span that became mixed go to `mixed`.
  void give_locked(PageHeap& pages, MixedHeap& mixed, unsigned size_class, void* const* pointers,
                   unsigned count);

  /// Makes sparse spans mixed until they bring about `wanted_bytes` in free ranges that hold
  /// `block_bytes`. It looks at a bounded number of spans. `home`: as in MixedHeap::convert().
  /// Returns how many were converted.
  unsigned donate_locked(MixedHeap& mixed, unsigned size_class, size_t block_bytes,
                         size_t wanted_bytes, unsigned home = 0);

  /// The most bytes that donate_locked() could bring: those of free slots. Takes no lock. Zero
  /// unless a good part of the bin is free.
  [[nodiscard]] size_t donatable_bytes_hint(unsigned size_class) const;

  /// Takes back the slots that other threads left in the remote queue. Returns the emptied batches,
  /// for their pool.
  [[nodiscard]] RemoteBatch* drain_locked(PageHeap& pages, MixedHeap& mixed, unsigned size_class);

  /// Purges the pages of free slots inside live spans, and gives empty spans to the page heap.
  /// Returns the pages purged inside spans.
  Pages compact_locked(PageHeap& pages, unsigned size_class);

  /// True while more is free than the class should keep unwatched. The heap then calls
  /// end_period_locked() every IdleSlots::kPeriodMs, and purge_unwanted_locked(). Takes no lock;
  /// for one thread at a time.
  [[nodiscard]] bool is_watched(unsigned size_class) {
    idle_.settle(backed_bytes(class_info(size_class).bytes));
    return idle_.watched();
  }
  void end_period_locked(size_t slot_bytes);
  /// The bytes of free slots that a fall gives back: none, or so many that a search is worth its
  /// time. Takes no lock.
  [[nodiscard]] size_t fallen_bytes_hint(unsigned size_class) const;
  /// All free slots are unwanted now: call purge_unwanted_locked() until it leaves enough looks.
  void begin_fall_locked() {
    idle_.begin_fall(counts_.free_slots);
    search_lists(kLists);
  }
  /// As compact_locked(), but it purges only as many pages as slots were free and unwanted, in the
  /// emptiest spans first. A span costs one look; a span that gives pages back costs kLooksAPurge.
  /// Returns the looks that are left. If they are fewer than kLooksAPurge, call again later.
  [[nodiscard]] unsigned purge_unwanted_locked(PageHeap& pages, unsigned size_class,
                                               unsigned looks);

  /// Gives the page heap whole free pages of sparse spans for the next request: about `wanted`, of
  /// a bounded number of spans. If mixed spans serve the class, the rest of the span is converted
  /// to a mixed span. `home`: as in MixedHeap::convert(). Returns how many pages. pre:
  /// may_lend(size_class)
  Pages lend_locked(PageHeap& pages, MixedHeap& mixed, unsigned size_class, Pages wanted,
                    unsigned home = 0);
  /// Whether spans of the class can have a page that no used slot touches, and whether the record
  /// has room to name such pages.
  [[nodiscard]] static bool may_lend(unsigned size_class) {
    const SizeClassInfo& info = class_info(size_class);
    return info.pages > 1 && info.slots <= kMaxPartialSlots;
  }
  /// The most bytes that lend_locked() could bring: those of free slots. Takes no lock. Zero unless
  /// a good part of the bin is free.
  [[nodiscard]] size_t lendable_bytes_hint(unsigned size_class) const;

  [[nodiscard]] BinStats stats_locked() const {
    BinStats s{};
    add_stats_locked(&s);
    return s;
  }
  void add_stats_locked(BinStats* sum) const;
  [[nodiscard]] bool is_valid_locked(unsigned size_class) const;

  /// Sets the bin's number among the bins of its class. pre: the bin has no span yet
  void set_number(unsigned number) { number_ = static_cast<uint8_t>(number); }
  /// Keeps up to `bytes` bytes in empty spans from now on. Without this call a bin keeps none.
  void keep_empty_locked(size_t bytes, unsigned size_class);
  /// Whether there are empty spans. Takes no lock.
  [[nodiscard]] bool has_empty_hint() const { return counts_.empty_spans != 0; }
  /// Gives up to `most` empty spans to the page heap. Returns how many.
  [[nodiscard]] unsigned release_empty_locked(PageHeap& pages, unsigned size_class, unsigned most);
  /// True, once in a while, if threads contend for the lock so often that the class should have
  /// more bins.
  [[nodiscard]] bool is_crowded_locked() { return crowding_.is_crowded_locked(mutex_); }
  /// Slots that are free in spans, and slots in the remote queue, which will be free. Takes no
  /// lock.
  [[nodiscard]] size_t free_slots_hint() const { return counts_.free_slots + remote_.queued(); }
  [[nodiscard]] size_t free_slots_locked() const { return counts_.free_slots; }
  /// Pages of its spans that hold no memory. Takes no lock.
  [[nodiscard]] size_t unbacked_pages_hint() const { return counts_.unbacked_pages; }
  /// Slots handed out. Takes no lock.
  [[nodiscard]] size_t used_slots_hint(unsigned size_class) const {
    const size_t slots = counts_.spans * class_info(size_class).slots,
                 free = counts_.free_slots + counts_.absent_slots;
    return free < slots ? slots - free : 0;
  }

  [[nodiscard]] Mutex& mutex() { return mutex_; }
  [[nodiscard]] RemoteQueue& remote() { return remote_; }
  [[nodiscard]] TransferStash& stash() { return stash_; }
  [[nodiscard]] const TransferStash& stash() const { return stash_; }

 private:
  friend struct CounterFields;
  void push_empty(Span* span);
  [[nodiscard]] uint32_t own_label(unsigned size_class) const;
  [[nodiscard]] bool is_own(const Span* span, unsigned size_class) const;
  [[nodiscard]] bool is_own_partial(const Span* span, unsigned size_class) const;
  void place(Span* span);
  void unlink(Span* span);
  void note_backed(Span* span, const SizeClassInfo& info, void* const* begin, void* const* end);
  void release_span(Span* span, unsigned slots, Span** gone);
  Pages purge_span(Span* span, unsigned size_class, Span** gone);
  void search_lists(unsigned count);
  [[nodiscard]] Pages unwanted_pages(size_t slot_bytes) const;
  /// The bytes of free slots on backed pages, about.
  [[nodiscard]] size_t backed_bytes(size_t slot_bytes) const {
    const size_t free = counts_.free_slots * slot_bytes,
                 gone = Pages(counts_.unbacked_pages).bytes();
    return free < gone ? 0 : free - gone;
  }
  [[nodiscard]] unsigned give_whole_spans(unsigned size_class, void* const* pointers,
                                          unsigned count, Span** gone);
  struct Giving;
  LOAM_NOINLINE void give_some_locked(Giving& giving, void* const* pointers, unsigned count);
  void move(Giving& giving, Span** spans, unsigned count);
  void give_other(Giving& giving, void* const* pointer, Span* span);
  [[nodiscard]] bool give_partial(Giving& giving, void* pointer, Span* span);
  [[nodiscard]] Span* add_span(PageHeap& pages, Refill& refill, From from);
  [[nodiscard]] bool take_whole_spans(PageHeap& pages, Refill& refill, From from);
  void take_slots_of(Span* span, Refill& refill);
  [[nodiscard]] PageHeap::SpanShape shape_of_spans(unsigned size_class) const;
  [[nodiscard]] Span* allocate_short(PageHeap& pages, PageHeap::SpanShape shape);
  [[nodiscard]] bool make_mixed(MixedHeap& mixed, Span* span, const SizeClassInfo& info,
                                unsigned home, Pages* lent);
  Pages lend_pages(PageHeap& pages, Span* span, const SizeClassInfo& info);
  void refuse(const Giving& giving, void* const* pointer, const Span* span);
  [[nodiscard]] bool partial_is_valid(const Span* span, unsigned size_class) const;
  void give_scattered(Giving& giving, void* const* pointers, Span** found, unsigned count);
  unsigned give_one(Giving& giving, void* const* pointers, Span* span);
  unsigned give_near(Giving& giving, void* const* pointers, Span* span, unsigned count);
  unsigned give_run(Giving& giving, void* const* pointers, Span* span, unsigned run);

  // Read without the lock by the hints.
  struct Counts {
    LockedCount spans;
    LockedCount free_slots;
    LockedCount unbacked_pages;
    LockedCount absent_slots;  // of partial spans
    LockedCount absent_pages;
    LockedCount empty_spans;
  };
  // Since the start, as in BinStats.
  struct Totals {
    uint64_t taken = 0;
    uint64_t given = 0;
    uint64_t remote_batches = 0;
    uint64_t remote_blocks = 0;
  };
  // A search for unwanted pages visits the spans that were in a list when it reached the list. The
  // list of the emptiest spans comes first.
  struct Search {
    uint32_t spans = 0;  // spans left in the first of ...
    uint8_t lists = 0;   // ... the last so many lists
  };

  Mutex mutex_;
  uint32_t occupied_ = 0;  // bit k: lists_[k] is not empty
  uint16_t most_empty_ = 0;
  uint8_t number_ = 0;  // Span::bin of its spans
  RemoteQueue remote_;
  List<Span> lists_[kLists];
  // Empty spans, which are in no other list. If threads contend for the class, up to most_empty_ of
  // them are kept, because one thread soon takes what another has freed. Otherwise other classes
  // get them at once (decision 25).
  List<Span> empty_;
  Counts counts_;
  IdleSlots idle_;
  Totals totals_;
  uint32_t occupancy_[kLists] = {};  // spans in each list; [0] with those in empty_
  Search search_;
  Crowding crowding_;
  TransferStash stash_;
};

/// Makes every bin hand out random slots of its spans instead of the lowest. pre: no threads run
/// yet, and the random source was started
void choose_slots_at_random();
[[nodiscard]] bool slots_are_chosen_at_random();

}  // namespace loam
