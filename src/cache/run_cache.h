// A thread's freed runs of pages: blocks above the largest class, taken and given back without a
// lock.
//
//   bins_[b] -> Span -> Span        runs of nearly one length, the last freed first
//
// Up to 32 pages a bin has one length, above that a sixteenth of a doubling. A request takes a run
// of its length or one that is longer by at most 1/16, whole: nothing is cut, for a run that is cut
// here, where only few are seen, would have served a longer request later, and the page heap knows
// a better one. What finds no room sends half of the cache home, the longest unused first, under
// one lock.
//
// Where all that is kept has one length, and that was asked for last in its shard, the half goes as
// a batch that waits there as it stands (pages/page_shard.h), and comes back as one: who allocates
// many blocks of a length and frees many takes two locks a batch. A kept run's first page goes on
// naming it: its kind says that it is nobody's.
//
// The page heap counts cached runs as used. What it counts as live blocks changes only where it
// takes part, so the cache counts what it took and gave itself: live = the page heap's + sum of
// (taken - given) over caches.
//
// Owned by its thread; others read the counts. A run is forgotten before it is anybody else's, so
// that the copy of another thread's cache that a fork()ed child sees loses a run at worst, or what
// came with one.
#pragma once

#include "base/owned_counter.h"
#include "base/shared_room.h"
#include "pages/shard_runs.h"

namespace loam {

/// What caches did to blocks above the largest class. Counts only grow, and wrap.
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

  /// A block of the default heap, at a page's start, kept here or parked in a shard of the page
  /// heap; null when there is none. Its memory is not zero. pre: 0 < pages
  [[nodiscard]] Span* take(Pages pages, size_t requested);
  /// One that is kept here, at a multiple of `alignment`, a power of two.
  [[nodiscard]] Span* take_aligned(Pages pages, Pages alignment, size_t requested);

  /// Keeps a block's run; false, and nothing happened, where there is no room. pre: a live block of
  /// the default heap
  [[nodiscard]] bool give(Span* span);
  /// For a run, which give() refused, if it should not rather go to its shard. May purge.
  void make_room(const Span* span);
  /// The same where a batch of it may wait in its shard as it stands; false, and nothing happened,
  /// where that is not so.
  [[nodiscard]] bool pass_batch(const Span* span);

  /// Gives a block to its shard; false, and nothing happened, where that is not its place: it is
  /// too long, or this cache would rather keep it (make_room()). pre: as give(), which refused it
  [[nodiscard]] bool park(Span* span);
  /// The same where it would rather keep it, but others hold what all caches may; false where it is
  /// too long, or the thread has no shard.
  [[nodiscard]] bool park_refused(Span* span);
  /// True while give() refuses everything.
  [[nodiscard]] bool is_bypassed() const { return bypassed_ != 0; }
  /// The shard of the cache's thread. pre: the cache is a thread's
  [[nodiscard]] unsigned shard();
  /// Calls of park() that did.
  [[nodiscard]] uint32_t parked() const { return parked_; }
  /// Calls of give() that kept the run.
  [[nodiscard]] uint32_t calls() const { return clock_; }

  /// All of it goes home.
  void flush();
  /// The same, and the room that was granted. The counts stay.
  void close();
  /// The heap took so many pages that nobody had: of what is kept as many go home, what waited
  /// longest first, for who asks next.
  void note_growth(Pages fresh);
  /// Now and then: what was not used since the last time is flushed, and its room goes to others.
  void collect();

  [[nodiscard]] const RunCounts& counts() const { return counts_; }
  /// pre: added to some sum
  void reset_counts() { counts_ = RunCounts{}; }
  /// Recent values, for other threads too.
  [[nodiscard]] Pages held() const {
    return Pages(__atomic_load_n(&held_pages_, __ATOMIC_RELAXED));
  }
  [[nodiscard]] size_t held_runs() const { return __atomic_load_n(&held_runs_, __ATOMIC_RELAXED); }
  /// Pages that it may hold.
  [[nodiscard]] Pages room() const { return Pages(room_); }
  [[nodiscard]] bool is_valid() const;

  static constexpr unsigned kMostRuns = 32;
  /// Pages that it holds at most.
  static constexpr uint64_t kMostRoom = 512;
  /// While it is passed by, so many frees in a row of the length that was asked for last end that:
  /// such runs might go in batches. Chosen: as many as it holds at most. Fewer look again for
  /// nothing where lengths come by turns, more are late for a program with few blocks (decision
  /// 33).
  static constexpr uint32_t kAskedInARow = kMostRuns;

  /// What all caches may hold: this, or the heap's size divided by kRoomShare.
  static constexpr size_t kProcessRoom = size_t{4} << 20;
  static constexpr size_t kRoomShare = 32;
  static SharedRoom<kProcessRoom, kRoomShare> process_room;

 private:
  friend struct CounterFields;
  static constexpr unsigned kExact = 32;  // pages up to which a bin has one length
  static constexpr unsigned kBins = kExact + 16 * 3 + 1;
  using Occupied = Bitmap<128>;
  static_assert(kBins < 128 && kLongest.count == 256, "three doublings above kExact");

  [[nodiscard]] static unsigned bin_of(unsigned pages) {
    if (pages < kExact) return pages;
    const unsigned doubling = highest_bit(pages);
    return kExact + (doubling - 5) * 16 + ((pages >> (doubling - 4)) & 15);
  }
  /// What give() may fill.
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
  uint32_t refused_ = 0;         ///< runs that came while there was no room at all
  uint32_t hits_ = 0;            ///< blocks taken since room last ran out
  uint32_t filled_at_ = 0;       ///< clock_ when room last ran out
  uint32_t bypassed_ = 0;        ///< frees to go until it is tried again
  uint32_t asked_in_a_row_ = 0;  ///< the last ones of them that had the length asked for last
  uint32_t parked_ = 0;
  uint8_t shard_ = 0;  ///< the thread's, plus 1; 0 = none yet
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
  if (pages > kPagesPerBlock || (bypassed_ == 0 && pages <= kLongest.count) || shard_ == 0)
    return false;
  if (bypassed_ != 0) {
    asked_in_a_row_ =
        page_heap.length_asked(PageHeap::shard_of(span)) == pages ? asked_in_a_row_ + 1 : 0;
    bypassed_ = asked_in_a_row_ < kAskedInARow ? bypassed_ - 1 : 0;
  }
  park_now(span);
  return true;
}

LOAM_INLINE void RunCache::park_now(Span* span) {
  ++parked_;
  used_ = true;
  count_given(span->large.pages, span->large.requested);
  page_heap.give_run(span);
}

}  // namespace loam
