// One size class of one heap: its spans by occupancy, fullest first.
//
//   lists_[k] holds the spans with 0 < free slots whose share of used slots is in [k/8, (k+1)/8)
//   full spans are in no list; every other span is in exactly one
//   slots of all spans = free_slots_ + slots handed out (in magazines, in remote batches, in the stash, or live)
//
// Taking from the fullest span lets the emptier ones drain and go back whole; every step is O(1) a
// slot and nothing is ever searched, which is what keeps the hundredth round as fast as the first.
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
  size_t unbacked_pages;  ///< of live spans, given back to the system or not used yet
  size_t absent_slots;    ///< of partial spans: neither free nor anybody's
  size_t absent_pages;
  uint64_t taken;  ///< slots handed to caches since the start
  uint64_t given;  ///< slots that came back
  size_t queued;   ///< slots in the remote queue and in the stash
  uint64_t remote_batches;
  uint64_t remote_blocks;  ///< slots that came in them
  uint64_t lock_acquisitions;
  uint64_t lock_contentions;
  uint64_t lock_refusals;  ///< flushes that went to the remote queue instead of waiting
  uint32_t occupancy[8];   ///< spans by list; full ones are in none
};

class Bin {
 public:
  static constexpr unsigned kLists = 8;
  /// Those of spans of which a quarter is free, or more: they become mixed, and lend pages. Chosen:
  /// half leaves most of a bin that a phase freed half of alone (decision 43).
  static constexpr unsigned kSparseLists = kLists * 3 / 4;

  constexpr Bin() = default;

  /// Where the bin takes spans once its own are used up.
  enum class From : uint8_t {
    kBacked,     ///< runs of a span's length whose pages hold memory
    kShortRuns,  ///< and, where there is none, the longest that holds a slot (partial_span.h)
    kAnywhere,   ///< and runs whose pages hold no memory yet
  };
  /// Whose the bin's spans are, and how the map names them.
  struct Owner {
    uint8_t heap;
    bool is_mapped;  ///< under the class's number; else under none
  };
  /// Adds slots of the fullest spans to the refill, the lowest address on top of the others.
  /// Returns how many: none when memory is refused, or there is nothing of that kind.
  unsigned take_locked(PageHeap& pages, Owner owner, Refill& refill, From from = From::kAnywhere);

  /// Gives slots back. A slot that is already free, a pointer into a slot's middle, to another
  /// class or to nothing is a misuse: reported, then dropped. Slots of a span that became mixed go
  /// to `mixed`.
  void give_locked(PageHeap& pages, MixedHeap& mixed, unsigned size_class, void* const* pointers,
                   unsigned count);

  /// Makes sparse spans mixed until about `wanted_bytes` of free ranges that hold `block_bytes` are
  /// gained. A bounded number of spans is looked at. `home`: as MixedHeap::convert(). Returns how
  /// many were converted.
  unsigned donate_locked(MixedHeap& mixed, unsigned size_class, size_t block_bytes,
                         size_t wanted_bytes, unsigned home = 0);

  /// Bytes of free slots, without the lock: how much donate_locked() could bring at most. Zero
  /// unless a good part of the bin is free.
  [[nodiscard]] size_t donatable_bytes_hint(unsigned size_class) const;

  /// Takes what other threads left in the remote queue. Returns the emptied batches, for their
  /// pool.
  [[nodiscard]] RemoteBatch* drain_locked(PageHeap& pages, MixedHeap& mixed, unsigned size_class);

  /// Gives the pages of free slots inside live spans back to the system, and empty spans to the
  /// page heap. Returns the pages purged inside spans.
  Pages compact_locked(PageHeap& pages, unsigned size_class);

  /// True while more is free than the class should keep without a look: end_period_locked() every
  /// IdleSlots::kPeriodMs, and purge_unwanted_locked(). Without the lock, for one thread at a time.
  [[nodiscard]] bool is_watched(unsigned size_class) {
    idle_.settle(backed_bytes(class_info(size_class).bytes));
    return idle_.watched();
  }
  void end_period_locked(size_t slot_bytes);
  /// As compact_locked(), but only as many pages as slots were free and unwanted, the emptiest
  /// spans' first. A span that is met costs a look, one that gives pages back kLooksAPurge. Returns
  /// the looks that are left: where they are fewer than that, it is to go on later.
  [[nodiscard]] unsigned purge_unwanted_locked(PageHeap& pages, unsigned size_class,
                                               unsigned looks);

  /// Gives the page heap whole free pages of sparse spans for whoever asks next: about `wanted`, of
  /// a bounded number of spans. Of a class that mixed spans serve, what is left of such a span
  /// becomes one; `home`: as MixedHeap::convert(). Returns how many. pre: may_lend(size_class)
  Pages lend_locked(PageHeap& pages, MixedHeap& mixed, unsigned size_class, Pages wanted,
                    unsigned home = 0);
  /// Whether spans of the class can have a page that no used slot touches, and a record has room to
  /// say which.
  [[nodiscard]] static bool may_lend(unsigned size_class) {
    const SizeClassInfo& info = class_info(size_class);
    return info.pages > 1 && info.slots <= kMaxPartialSlots;
  }
  /// Bytes of free slots, without the lock: how much lend_locked() could bring at most. Zero unless
  /// a good part of the bin is free.
  [[nodiscard]] size_t lendable_bytes_hint(unsigned size_class) const;

  [[nodiscard]] BinStats stats_locked() const {
    BinStats s{};
    add_stats_locked(&s);
    return s;
  }
  void add_stats_locked(BinStats* sum) const;
  [[nodiscard]] bool is_valid_locked(unsigned size_class) const;

  /// Which of its class's bins it is: before it has a span.
  void set_shard(unsigned shard) { shard_ = static_cast<uint8_t>(shard); }
  /// Keeps so many bytes in empty spans from now on, at least one span.
  void keep_empty_locked(size_t bytes, unsigned size_class);
  /// Empty spans beyond the one that every bin may keep, without the lock.
  [[nodiscard]] bool has_empty_hint() const { return empty_spans_ > 1; }
  /// Just one, as every bin may keep, without the lock.
  [[nodiscard]] bool has_one_empty_hint() const { return empty_spans_ == 1; }
  /// Gives up to `most` empty spans to the page heap. Returns how many.
  [[nodiscard]] unsigned release_empty_locked(PageHeap& pages, unsigned size_class, unsigned most);
  /// True, once in a while, where threads meet at the lock so often that the class should have more
  /// bins.
  [[nodiscard]] bool is_crowded_locked() { return crowding_.is_crowded_locked(mutex_); }
  /// Slots that are free in spans, or in the remote queue and will be; without the lock.
  [[nodiscard]] size_t free_slots_hint() const { return free_slots_ + remote_.queued(); }
  [[nodiscard]] size_t free_slots_locked() const { return free_slots_; }
  /// Slots handed out; without the lock.
  [[nodiscard]] size_t used_slots_hint(unsigned size_class) const {
    const size_t slots = spans_ * class_info(size_class).slots, free = free_slots_ + absent_slots_;
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
  /// Of free slots, about.
  [[nodiscard]] size_t backed_bytes(size_t slot_bytes) const {
    const size_t free = free_slots_ * slot_bytes, gone = Pages(unbacked_pages_).bytes();
    return free < gone ? 0 : free - gone;
  }
  [[nodiscard]] unsigned give_whole_spans(unsigned size_class, void* const* pointers,
                                          unsigned count, Span** gone);
  struct Giving;
  LOAM_NOINLINE void give_some_locked(Giving& giving, void* const* pointers, unsigned count);
  void move(Giving& giving, Span** spans, unsigned count);
  void give_other(Giving& giving, void* const* pointer, Span* span);
  [[nodiscard]] bool give_partial(Giving& giving, void* pointer, Span* span);
  [[nodiscard]] Span* add_span(PageHeap& pages, Owner owner, Refill& refill, From from);
  [[nodiscard]] bool take_whole_spans(PageHeap& pages, Owner owner, Refill& refill, From from);
  void take_slots_of(Span* span, Refill& refill);
  [[nodiscard]] PageHeap::SpanShape shape_of_spans(unsigned size_class, Owner owner) const;
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

  Mutex mutex_;
  uint32_t occupied_ = 0;  // bit k: lists_[k] is not empty
  uint16_t more_empty_ = 0;
  uint8_t shard_ = 0;  // Span::shard of its spans
  RemoteQueue remote_;
  List<Span> lists_[kLists];
  // In no other list: one stays, or a class at the edge would churn the page heap; where threads
  // meet, as many more as more_empty_ says, or what is one thread's turn would be the other's next.
  List<Span> empty_;
  // Read without the lock by the hints.
  LockedCount spans_;
  LockedCount free_slots_;
  LockedCount unbacked_pages_;
  LockedCount absent_slots_;  // of partial spans
  LockedCount absent_pages_;
  LockedCount empty_spans_;
  IdleSlots idle_;
  uint64_t taken_ = 0;
  uint64_t given_ = 0;
  uint64_t remote_batches_ = 0;
  uint64_t remote_blocks_ = 0;
  uint32_t occupancy_[kLists] = {};  // spans in each list
  // A search for unwanted pages meets what was in a list when it came there, first the list of the
  // emptiest spans.
  uint32_t spans_to_search_ = 0;  // in the first of the ...
  uint8_t lists_to_search_ = 0;   // ... last so many lists
  Crowding crowding_;
  TransferStash stash_;
};

/// Has every bin hand out random slots of its spans instead of the lowest. Before threads start;
/// the random source was started.
void choose_slots_at_random();
[[nodiscard]] bool slots_are_chosen_at_random();

}  // namespace loam
