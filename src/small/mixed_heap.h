// Mixed spans: sparse spans of one size class whose free slots were opened to blocks of every class
// up to 8 KiB.
//
// A program that frees a part of its blocks and goes on with another size would otherwise keep
// both: the free slots of a span serve their own class only. When a bin needs memory and no backed
// run of its spans' length is free, sparse spans of other bins become mixed (mixed_shard.h). Before
// that, backed free pages in shorter runs become mixed spans without a block.
//
// The pages of a mixed span carry the class byte kMixedClass: free() pushes their blocks into a
// magazine of that number, from which malloc() never pops. When it is full its older half comes
// here, and what the thread's classes are in want of goes back to their magazines as it is.
//
// There is one shard, until threads meet at its lock: then two, four, at most kShards. A thread has
// a home, takes from the shard that this is one of, and makes spans mixed there; from the others,
// what is free there before a page is touched that nobody has. Blocks go back to the shard of their
// span, whoever frees them.
//
//   shards in use = 1 << doublings_;   a home's shard = home % shards in use;   shards not in use were never touched
//
// Thread-safe.
#pragma once

#include "map/page_map.h"
#include "small/mixed_shard.h"

namespace loam {

class MixedHeap {
 public:
  /// Over page_heap, all zero; or over another, in tests.
  constexpr MixedHeap() = default;
  constexpr explicit MixedHeap(PageHeap& pages) : other_pages_(&pages) {}

  static constexpr size_t kLargestBlock = MixedShard::kLargestBlock;
  using From = MixedShard::From;
  using Kept = MixedShard::Kept;
  /// Blocks that one call gives at most where some are kept.
  static constexpr unsigned kPiece = MixedShard::kPiece;

  /// Chosen: threads beyond it share homes; more cost some address space, and a look at each before
  /// a page is touched.
  static constexpr unsigned kShards = 8;

  /// Adds blocks from the shard of the refill's home. Returns how many. pre: home < kShards
  unsigned take(Refill& refill, From from = From::kSpans) {
    return take_from(refill.home, refill, from);
  }
  /// The same from the other shards, of one that has some.
  unsigned take_from_others(Refill& refill);

  /// Whether blocks of the class come from mixed spans, and spans of its slots become mixed.
  [[nodiscard]] static constexpr bool serves(unsigned size_class) {
    return size_class <= MixedShard::kLists;
  }

  /// A guess without a lock: is there a free range in the home's shard that holds a block of the
  /// class?
  [[nodiscard]] bool may_serve(unsigned size_class, unsigned home = 0) const {
    return serves(size_class) && shard_of(home).may_serve(size_class);
  }

  /// Takes blocks back. What is no block of a mixed span is a misuse: reported, then dropped.
  void give(void* const* pointers, unsigned count) { give(pointers, count, nullptr); }
  /// The same, but for those that the giver wants (Kept). pre: count <= kPiece, if there is a
  /// `kept`
  void give(void* const* pointers, unsigned count, Kept* kept);

  /// Makes a small span mixed, in the home's shard. False when memory for its tables is refused;
  /// the span is then unchanged. With `lent`, its whole free pages become the page heap's, if one
  /// of them is backed; so many that are go there. pre: the lock of the span's bin is held and the
  /// span is in none of its lists; slots <= kLargestBlock
  [[nodiscard]] bool convert(Span* span, unsigned home = 0, Pages* lent = nullptr);

  /// Bytes of the block at `address`, live or in a magazine; 0 when no block of a mixed span begins
  /// there. Any address is answered.
  [[nodiscard]] size_t block_bytes(uintptr_t address);
  /// The same for who looks at many, of which some may be no blocks any more. pre: lock_all()
  [[nodiscard]] static size_t block_bytes_locked(uintptr_t address);

  /// Gives the free pages inside mixed spans back to the system. Returns how many.
  Pages compact();

  /// Gives the page heap whole free pages of the mixed spans of the shard with the most to lend,
  /// for whoever asks next: about `wanted`, where it may bring more than so many bytes. Returns how
  /// many.
  Pages lend(Pages wanted, size_t more_than = 0);

  /// Now and then: gives the page heap whole free pages that nobody wanted, at most as many as
  /// `looks` allow (MixedShard::lend_unwanted_locked()). True while there may be more.
  [[nodiscard]] bool lend_unwanted(bool period_ends, unsigned looks);

  [[nodiscard]] MixedStats stats();
  /// Blocks of the class in mixed spans: live or in magazines.
  [[nodiscard]] size_t blocks(unsigned size_class);
  [[nodiscard]] bool is_valid();

  /// Of all shards; what else there is lies behind them.
  static constexpr size_t kShardBytes = sizeof(MixedShard) * kShards;

  [[nodiscard]] unsigned shards_in_use() const {
    // relaxed: who looks too early misses what is made there a moment later
    return 1u << doublings_.load(std::memory_order_relaxed);
  }
  /// pre: shard < kShards
  [[nodiscard]] const Mutex& mutex(unsigned shard) const { return shards_[shard].mutex(); }
  /// Uses twice as many shards, if there are more: what happens by itself where threads meet.
  void use_more_shards();

  /// All locks, in order: around fork(), and for who wants to see all shards at once.
  void lock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void unlock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void reset_locks_after_fork();

 private:
  friend struct CounterFields;

  /// act() under the shard's lock, and what it returns; more shards then, where threads meet there.
  template <class Act>
  [[nodiscard]] unsigned in_shard(MixedShard& shard, Act act);
  unsigned take_from(unsigned home, Refill& refill, From from);
  void give_to(MixedShard& shard, void** pointers, Span** spans, unsigned count, Kept* kept);
  void give_by_shards(void** pointers, Span** spans, unsigned count, Kept* kept);
  void give_stranger(void* pointer);
  [[nodiscard]] MixedShard* shard_named_by(const Span* span);
  [[nodiscard]] MixedShard& shard_of(unsigned home) {
    return shards_[home & (shards_in_use() - 1)];
  }
  [[nodiscard]] const MixedShard& shard_of(unsigned home) const {
    return shards_[home & (shards_in_use() - 1)];
  }
  [[nodiscard]] PageHeap& pages() const {
    return LOAM_LIKELY(other_pages_ == nullptr) ? page_heap : *other_pages_;
  }
  /// For each shard in use, under its lock.
  template <class Do>
  void for_each_locked(Do act);

  MixedShard shards_[kShards];
  // Last, beside what SmallHeap looks at next: all that a heap without mixed spans looks at.
  PageHeap* other_pages_ = nullptr;
  std::atomic<bool> used_{false};  // some span was or is mixed
  std::atomic<uint8_t> doublings_{0};
};
static_assert((MixedHeap::kShards & (MixedHeap::kShards - 1)) == 0, "reached by doubling");

}  // namespace loam
