// A thread's freed runs of pages, for blocks above the largest class. The thread takes and gives
// them without a lock.
//
//   bins_[b] -> Span -> Span        runs of nearly one length, the last freed first
//
// Below 32 pages a bin has one length; from there on it has a sixteenth of a doubling. A request
// takes a run of its length, or one that is longer by at most 1/16, as a whole. No run is cut here,
// because the whole run might serve a longer request later. The page heap sees more runs, and knows
// a better one to cut. When a freed run finds no room, half of the cache returns to the page heap,
// the longest unused runs first, under one lock.
//
// When all kept runs have one length, and this length was requested last in its shard, half of them
// go there as one batch. The batch waits there as it is (pages/page_shard.h), and comes back as
// one. So a thread that allocates many blocks of a length and then frees many takes two locks for
// each batch. The first page of a kept run still leads to its span, and the span's kind says that
// the run is cached.
//
// The page heap counts cached runs as used. Its count of live blocks changes only in calls that
// reach it, so the cache counts the blocks that it took and gave itself: live = the page heap's +
// sum of (taken - given) over caches.
//
// Its thread owns a cache; other threads read the counts. The cache forgets a run before another
// owner gets it. So the copy of another thread's cache in a fork()ed child can at worst lose a run,
// or the rest of its batch.
#pragma once

#include "base/owned_counter.h"
#include "base/shared_room.h"
#include "pages/shard_runs.h"

namespace loam {

/// The blocks above the largest class that passed through caches. Counts only grow, and wrap.
struct RunCounts {
  uint64_t taken;  ///< blocks handed out
  uint64_t given;  ///< blocks taken back
  uint64_t taken_pages;
  uint64_t given_pages;
  uint64_t taken_requested;  ///< bytes
  uint64_t given_requested;
};
static_assert(sizeof(RunCounts) == 6 * sizeof(uint64_t), "add_counts() goes over it as an array");

class RunCache {
 public:
  static constexpr Pages kLongest = kLongestKept;

  constexpr RunCache() = default;

  /// A block of the default heap, at a page's start, from a run that is kept here or parked in a
  /// shard of the page heap; null when there is none. Its memory is not zero. pre: 0 < pages
  [[nodiscard]] Span* take(Pages pages, size_t requested);
  /// The same, but only from runs that are kept here, and at a multiple of `alignment`, a power of
  /// two.
  [[nodiscard]] Span* take_aligned(Pages pages, Pages alignment, size_t requested);

  /// Keeps a block's run; false, and no change, where there is no room. pre: a live block of the
  /// default heap
  [[nodiscard]] bool give(Span* span);
  /// Makes room for a run that give() refused, unless the run should go to its shard. May purge.
  void make_room(const Span* span);
  /// The same, by sending a batch to wait in its shard as it is; false, and no change, where there
  /// is no such batch.
  [[nodiscard]] bool pass_batch(const Span* span);

  /// Gives a block to its shard; false, and no change, where the block is too long, or this cache
  /// should keep it (make_room()). pre: as give(), which refused it
  [[nodiscard]] bool park(Span* span);
  /// The same where this cache should keep the block, but the other caches hold all the shared
  /// room; false where the block is too long, or the thread has no shard.
  [[nodiscard]] bool park_refused(Span* span);
  /// True while give() refuses everything.
  [[nodiscard]] bool is_bypassed() const { return bypassed_ != 0; }
  /// The shard of the cache's thread. pre: the cache is a thread's
  [[nodiscard]] unsigned shard();
  /// The number of runs that this cache parked.
  [[nodiscard]] uint32_t parked() const { return parked_; }
  /// True after each `runs` parked runs, or fewer long ones that were not taken again.
  [[nodiscard]] bool is_look_due(uint32_t runs) {
    if (LOAM_LIKELY(parked_ % runs != 0 && parked_since_ < kLookAfter)) return false;
    parked_since_ = 0;
    return true;
  }
  /// A run was taken that this cache did not keep.
  void note_missed(Pages pages) {
    const uint32_t weight = look_weight(pages.count);
    parked_since_ -= weight < parked_since_ ? weight : parked_since_;
  }
  /// The number of calls of give() that kept the run.
  [[nodiscard]] uint32_t calls() const { return clock_; }

  /// Returns all runs to the page heap.
  void flush();
  /// The same, and returns the granted room. The counts stay.
  void close();
  /// Call after the heap took `fresh` unbacked pages. As many kept pages return to the page heap,
  /// the longest unused first, to serve the next requests.
  void note_growth(Pages fresh);
  /// Call now and then. A cache that was not used since the last call is flushed, and its room is
  /// returned.
  void collect();

  [[nodiscard]] const RunCounts& counts() const { return counts_; }
  /// pre: the counts were added to a sum
  void reset_counts() { counts_ = RunCounts{}; }
  /// Recent values, for other threads too.
  [[nodiscard]] Pages held() const {
    return Pages(__atomic_load_n(&held_pages_, __ATOMIC_RELAXED));
  }
  [[nodiscard]] size_t held_runs() const { return __atomic_load_n(&held_runs_, __ATOMIC_RELAXED); }
  /// The pages that it may hold.
  [[nodiscard]] Pages room() const { return Pages(room_); }
  [[nodiscard]] bool is_valid() const;

  /// The most runs that it ever holds. A flush is then no longer a pause than a join of as many.
  static constexpr unsigned kMostRuns = kJoinedAtOnce;
  /// The most pages that it ever holds.
  static constexpr uint64_t kMostRoom = 512;

  /// What all caches hold.
  static SharedRoom<kProcessBytes / 4, kProcessShare> process_room;

 private:
  friend struct CounterFields;
  static constexpr unsigned kExact = 32;  // below this many pages a bin has one length
  static constexpr unsigned kBins = kExact + 16 * 3 + 1;
  using Occupied = Bitmap<128>;
  static_assert(kBins < 128 && kLongest.count == 256, "three doublings above kExact");

  [[nodiscard]] static unsigned bin_of(unsigned pages) {
    if (pages < kExact) return pages;
    const unsigned doubling = highest_bit(pages);
    return kExact + (doubling - 5) * 16 + ((pages >> (doubling - 4)) & 15);
  }
  /// The pages that give() may fill.
  [[nodiscard]] uint64_t limit() const { return bypassed_ != 0 ? 0 : room_; }
  Span* take_out(Span** link, unsigned bin, size_t requested);
  [[nodiscard]] Span* take_parked(Pages pages, size_t requested);
  [[nodiscard]] bool may_come_in_batches(const Span* span) const;
  bool send_batch(const Span* span);
  void park_now(Span* span);
  void keep_rest(const PageHeap::Runs& runs);
  [[nodiscard]] bool fits(uint64_t pages) const {
    return held_pages_ + pages <= limit() && held_runs_ != kMostRuns;
  }
  void set_held(uint64_t pages, uint64_t runs);
  void count_taken(uint64_t pages, size_t requested);
  void count_given(uint64_t pages, size_t requested);
  [[nodiscard]] bool grow(uint64_t pages);
  void send_home(uint64_t keep, uint64_t runs);

  Span* bins_[kBins] = {};
  Occupied occupied_ = {};
  uint64_t held_pages_ = 0;
  uint64_t held_runs_ = 0;
  uint64_t room_ = 0;  ///< pages it may hold
  uint32_t clock_ = 0;
  uint32_t refused_ = 0;         ///< runs that were freed while there was no room at all
  uint32_t hits_ = 0;            ///< blocks taken since room last ran out
  uint32_t filled_at_ = 0;       ///< clock_ when room last ran out
  uint32_t bypassed_ = 0;        ///< frees left until the cache is tried again
  uint32_t asked_in_a_row_ = 0;  ///< the latest frees in a row that had the length requested last
  uint32_t parked_ = 0;
  uint32_t parked_since_ = 0;  ///< weights since the last look, less those of runs taken
  /// A run weighs 1 and one for each 16 pages, but never so much that one in use and out makes a
  /// look due.
  [[nodiscard]] static uint32_t look_weight(size_t pages) {
    const size_t weight = 1 + pages / 16;
    return weight < kLookAfter / 2 ? static_cast<uint32_t>(weight) : kLookAfter / 2;
  }
  static constexpr uint32_t kLookAfter = 32;
  uint8_t shard_ = 0;  ///< the thread's shard plus 1; 0 = none yet
  bool used_ = false;  ///< since the last collection
  RunCounts counts_ = {};
};

LOAM_INLINE void RunCache::count_given(uint64_t pages, size_t requested) {
  count_up(counts_.given);
  count_up(counts_.given_pages, pages);
  count_up(counts_.given_requested, requested);
}

LOAM_INLINE bool RunCache::park(Span* span) {
  const uint64_t pages = span->large.pages;
  if (pages > kPagesPerSlab || (bypassed_ == 0 && pages <= kLongest.count) || shard_ == 0)
    return false;
  if (bypassed_ != 0) {
    asked_in_a_row_ =
        page_heap.length_asked(PageHeap::shard_of(span)) == pages ? asked_in_a_row_ + 1 : 0;
    // Such runs might go in batches, so a cache as long is tried again. After fewer it would be
    // tried in vain where lengths alternate; after more, late in a program with few blocks
    // (decision 27).
    bypassed_ = asked_in_a_row_ < kMostRuns ? bypassed_ - 1 : 0;
  }
  park_now(span);
  return true;
}

LOAM_INLINE void RunCache::park_now(Span* span) {
  ++parked_;
  parked_since_ += look_weight(span->large.pages);
  used_ = true;
  count_given(span->large.pages, span->large.requested);
  page_heap.give_run(span);
}

}  // namespace loam
