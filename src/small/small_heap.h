// All bins of one heap, and the two bulk operations that caches use: take and give.
//
// A class has one bin until threads contend for its lock; then it has two, four, at most
// MixedHeap::kHomes. Each thread has a home, a number that belongs to one of the bins, and takes
// from that bin. It takes free slots of the other bins before any fresh page is touched. Blocks go
// back to the bin of their span, whichever thread frees them.
//
//   a class's bins in use = 1 << doublings_[class];   a home's bin = home % bins in use
//   bins not in use were never touched
//   the bin of a span of bin_at(c, b) is b
//
// Thread-safe. A bin's lock is held for one bulk operation only. A thread that holds one takes no
// other bin's lock, except all of them in order.
#pragma once

#include "base/go_on.h"
#include "base/shared_room.h"
#include "pages/fallen_use.h"
#include "small/bin.h"
#include "small/refill.h"
#include "small/remote_pool.h"
#include "small/sources.h"

namespace loam {

class alignas(kPageBytes) SmallHeap {
 public:
  /// The default heap, all zero.
  constexpr SmallHeap() = default;
  /// Uses a page heap of its own, for tests.
  explicit constexpr SmallHeap(PageHeap& pages) : mixed_(pages), other_pages_(&pages) {}

  /// Fills a refill from the sources of its class, in their order (sources.h). Returns the number
  /// of blocks at the beginning of its places: at least one, or 0 when the system refuses memory. A
  /// batch that another thread gave with transfer() is taken whole, so there may be more blocks
  /// than wanted. pre: home < MixedHeap::kHomes
  [[nodiscard]] unsigned take(Refill& refill);
  [[nodiscard]] unsigned take(Refill&& refill) { return take(refill); }

  /// As take(), but only from spans of the class, so slots are at multiples of their size from a
  /// page's start.
  [[nodiscard]] unsigned take_slots(Refill&& refill);

  /// Call when a large run took fresh pages. Gives the page heap memory that may serve the next
  /// run: all empty spans that bins keep. For a run no longer than the longest span, it also gives
  /// whole free pages of sparse spans.
  void make_room_for_runs(Pages run);
  /// Does the first half of make_room_for_runs(). Costs almost nothing if no class has several
  /// bins.
  void release_empty_spans();

  enum class Wait {
    kNo,  ///< leave the slots in the remote queue instead of waiting for the bin
    kYes,
  };
  /// Gives slots of the class back. pre: count <= kMaxGive
  void give(unsigned size_class, void* const* pointers, unsigned count, Wait wait);
  static constexpr unsigned kMaxGive = 512;

  /// As give() with Wait::kNo, but leaves the slots for the next take() of another thread, if one
  /// is likely (transfer_stash.h). `giver`: as Refill::taker. pre: count <= max_transfer()
  void transfer(unsigned size_class, void* const* pointers, unsigned count, const void* giver);
  /// True if transfer() would leave this giver's slots to other threads. A guess. `first`: one of
  /// the slots. `home`: the giver's home, whose bin is better for slots that came from it.
  [[nodiscard]] bool wants_transfer(unsigned size_class, const void* giver, const void* first,
                                    unsigned home) const {
    return bins_in_use(size_class) == 1 ? bins_[size_class].stash().wants(giver)
                                        : wants_others(size_class, giver, first, home);
  }
  [[nodiscard]] static unsigned max_transfer(unsigned size_class) {
    return TransferStash::batch_slots(size_class);
  }

  /// Records a request that found its magazine empty. Where the requests or the slots of the class
  /// say so, finer classes serve it from now on (split_classes.h). pre: kFineLimit < bytes <=
  /// kLargestSmall
  LOAM_INLINE void note_request(unsigned size_class, size_t bytes) {
    if (LOAM_UNLIKELY(split_classes.note(size_class, bytes))) look_at_requests(size_class);
  }
  /// A class is split if that saves at least 1 / kLeastSavedShare of the memory of its slots, and
  /// at least this many bytes: what a class keeps free in normal use.
  static constexpr size_t kLeastSavedBytes = IdleSlots::kStep;

  /// Empties stashes of blocks that no thread took since the last look, and purges pages inside
  /// live spans whose slots were unwanted for a second (idle_slots.h). It does so at most once
  /// every kLookMs, and purges a bounded number of pages.
  void tick();

  /// Empties stashes and remote queues, returns empty spans, purges free pages inside live spans.
  /// With `go_on` it asks before each size class, and may end early.
  Pages compact(const GoOn* go_on = nullptr);

  /// What became free inside of spans since it was last given back. There may be no call
  /// afterwards, so it should go now, unless use fell by as much before and rose again.
  struct Fall {
    size_t bytes;      ///< of free slots of bins that are worth a search
    size_t used;       ///< of slots that were handed out
    size_t fallen;     ///< how far `used` fell on balance since the last give_back_fall()
    size_t came_back;  ///< the most of an earlier fall by which it rose again lately
  };
  /// Takes no lock; some loads a bin.
  [[nodiscard]] Fall look_at_fall();
  /// Gives that back: as compact(), but only for bins into which much was freed since the last
  /// time, and not if another thread is at it. Holds a lock only for a part of the work.
  void give_back_fall();

  [[nodiscard]] BinStats stats(unsigned size_class);
  /// Bytes of blocks that wait in stashes, or are about to. May be slightly old.
  [[nodiscard]] size_t stashed_bytes() const { return stash_room_.held(); }
  [[nodiscard]] bool is_valid();

  /// Gives back blocks that came from mixed spans.
  void give_mixed(void* const* pointers, unsigned count) { mixed_.give(pointers, count); }
  /// The same, except for blocks that the giver wants to keep (mixed_heap.h).
  void give_mixed(void* const* pointers, unsigned count, MixedHeap::Kept* kept) {
    mixed_.give(pointers, count, kept);
  }
  [[nodiscard]] MixedHeap& mixed() { return mixed_; }
  /// Stops sparse spans from becoming mixed, and from lending pages. For checks that must know
  /// every block's class.
  void keep_spans_pure(bool on = true) { pure_ = on; }

  [[nodiscard]] unsigned bins_in_use(unsigned size_class) const {
    // acquire pairs with the release in use_more_bins(): the bin then knows its number
    return 1u << doublings_[size_class].load(std::memory_order_acquire);
  }
  /// The most bytes that each bin keeps in empty spans, if its class has several bins.
  /// The reason: one thread soon takes what another has freed. These spans serve any thread before
  /// a fresh page is touched. Measured (decision 35).
  static constexpr size_t kEmptyBytes = size_t{1} << 20;
  /// Uses twice as many bins for the class, up to MixedHeap::kHomes. This also happens by itself
  /// when threads contend.
  void use_more_bins(unsigned size_class);

  [[nodiscard]] PageHeap& pages() {
    return LOAM_LIKELY(other_pages_ == nullptr) ? page_heap : *other_pages_;
  }

  /// Around fork(): every bin's lock, in class order.
  void lock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void unlock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void reset_locks_after_fork();
  /// Whether some thread, perhaps this one, holds one of the locks.
  [[nodiscard]] bool is_any_locked();

 private:
  friend struct CounterFields;

  /// pre: bin < bins_in_use(size_class)
  [[nodiscard]] Bin& bin_at(unsigned size_class, unsigned bin) {
    return LOAM_LIKELY(bin == 0) ? bins_[size_class] : more_bins_[size_class][bin - 1];
  }
  [[nodiscard]] const Bin& bin_at(unsigned size_class, unsigned bin) const {
    return const_cast<SmallHeap*>(this)->bin_at(size_class, bin);
  }
  [[nodiscard]] Bin& bin_of(unsigned size_class, unsigned home) {
    return bin_at(size_class, home & (bins_in_use(size_class) - 1));
  }
  void look_at_requests(unsigned size_class);
  static void separate_classes(unsigned size_class, size_t used,
                               const SplitClasses::Requests& seen);
  [[nodiscard]] bool may_be_partial() const { return !pure_ && !slots_are_chosen_at_random(); }
  [[nodiscard]] bool lend_pages(bool of_all, unsigned home);
  void note_use(Fall& fall);
  struct Candidate {
    Bin* bin;
    unsigned size_class;
    size_t bytes;  ///< the hint's value
  };
  template <class Hint>
  [[nodiscard]] Candidate bin_with_most(Hint hint);

  /// Runs act(size_class) for all classes that have bins.
  template <class Act>
  static void for_each_class(Act act) {
    const unsigned end = split_classes.end();
    for (unsigned c = 1; c < end; ++c) {
      if (has_own_spans(c)) act(c);
    }
  }
  /// Runs act(bin) for the class's bins in use.
  template <class Act>
  void for_each_bin(unsigned size_class, Act act) {
    const unsigned count = bins_in_use(size_class);
    for (unsigned s = 0; s < count; ++s) act(bin_at(size_class, s));
  }
  /// Runs act() under the bin's lock, after the bin took back the slots in its remote queue.
  template <class Act>
  void in_drained(Bin& bin, unsigned size_class, Act act);
  [[nodiscard]] bool wants_others(unsigned size_class, const void* giver, const void* first,
                                  unsigned home) const;

  [[nodiscard]] unsigned take_in_order(Refill& refill, bool needs_enough, bool own_slots);
  void take_from_rows(Refill& refill, unsigned least, uint8_t user);
  /// `refused`: the system refused fresh pages, so every search is worth its time.
  void take_from(BlockSource source, Refill& refill, bool refused);
  unsigned take_from_bin(Refill& refill, Bin::From from);
  [[nodiscard]] unsigned take_stashed(const Refill& refill);
  void take_mixed(Refill& refill, MixedHeap::From from);
  void take_from_other_bins(Refill& refill);
  void take_donated(Refill& refill, bool refused);
  void take_lent(Refill& refill, bool refused);
  [[nodiscard]] bool release_some_empty_spans(const Refill& refill);
  void give_to(Bin& bin, unsigned size_class, void* const* pointers, unsigned count, Wait wait);
  void give_by_bins(unsigned size_class, void* const* pointers, unsigned count, Wait wait);
  void empty_stash(unsigned size_class, bool all);
  void purge_unwanted(uint64_t now_ms);
  [[nodiscard]] bool donate(unsigned size_class, unsigned home);

  // All zero at first. The bins of small blocks are in the page of the members that every refill
  // reads; that page begins behind the parts of mixed_. PageHeap says why.
  [[maybe_unused]] char unused_[kPageBytes - MixedHeap::kPartsBytes % kPageBytes] = {};
  MixedHeap mixed_;
  alignas(64) SharedRoom<kProcessBytes / 16, 4 * kProcessShare> stash_room_;
  struct {
    std::atomic<uint64_t> last_ms{0};
    std::atomic<uint64_t> period_began_ms{0};
    std::atomic<unsigned> next_to_purge{0};  // the class at which the last one ended
  } looks_;
  struct {
    std::atomic<bool> is_busy{false};  // a thread is at it; the others are its
    FallenUse use;                     // of slots, in bytes
    RecentMost came_back;
    uint64_t round_began_ms = 0;
  } falls_;
  struct alignas(64) {
    std::atomic<unsigned> growths_skipped{0};  // since the last search for donors
    std::atomic<uint8_t> refused_class{0};     // the class whose blocks no donor could hold then
    std::atomic<unsigned> lends_skipped{0};    // since the last search for lenders
  } searches_;
  // Every refill and flush reads these; they are almost never written.
  alignas(64) PageHeap* other_pages_ = nullptr;
  std::atomic<bool> has_more_bins_{false};  // some class has several bins
  bool pure_ = false;
  std::atomic<uint8_t> doublings_[kMagazineCount] = {};
  Bin bins_[kMagazineCount];  // the bin of kMixedClass is never used
  // Last, because these are never touched if threads do not contend. The bins of a class are side
  // by side, so that few classes touch few pages.
  Bin more_bins_[kMagazineCount][MixedHeap::kHomes - 1];
};

template <class Act>
LOAM_INLINE void SmallHeap::in_drained(Bin& bin, unsigned size_class, Act act) {
  RemoteBatch* emptied;
  {
    Lock lock(bin.mutex());
    emptied = bin.drain_locked(pages(), mixed_, size_class);
    act();
  }
  remote_pool.give(emptied);
}

/// The bins behind malloc().
extern SmallHeap default_small_heap;

}  // namespace loam
