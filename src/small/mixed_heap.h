// Mixed spans: sparse spans of one size class whose free slots are open to blocks of every class up
// to 8 KiB.
//
// The free slots of an ordinary span serve only their own class. So a program that frees a part of
// its blocks and continues with another size would otherwise keep the memory of both. When a bin
// needs memory and no backed run of its spans' length is free, sparse spans of other bins become
// mixed (mixed_part.h). Before that, backed free pages in shorter runs become mixed spans without
// a block.
//
// The pages of a mixed span have the class byte kMixedClass. free() pushes their blocks into a
// magazine of that number, from which malloc() never pops. When the magazine is full, its older
// half is given to the mixed heap. Blocks that the thread's classes need go back to the magazines
// of these classes unchanged.
//
// There is one part until threads contend for its lock; then there are two, four, at most kHomes.
// Each thread has a home, a number that belongs to one of the parts. The thread takes from that
// part, and makes spans mixed there. It takes free memory from other parts before any fresh page
// is touched. Blocks go back to the part of their span, whichever thread frees them.
//
//   parts in use = 1 << doublings_;   a home's part = home % parts in use
//   parts not in use were never touched
//
// Thread-safe.
#pragma once

#include "map/page_map.h"
#include "small/mixed_part.h"

namespace loam {

class MixedHeap {
 public:
  /// Uses page_heap, and is all zero; tests use another page heap.
  constexpr MixedHeap() = default;
  constexpr explicit MixedHeap(PageHeap& pages) : other_pages_(&pages) {}

  static constexpr size_t kLargestBlock = MixedPart::kLargestBlock;
  using From = MixedPart::From;
  using Kept = MixedPart::Kept;
  /// The most blocks that one call may give if some are kept.
  static constexpr unsigned kPiece = MixedPart::kPiece;

  /// Chosen: more threads than this share homes. More parts cost some address space, and a look at
  /// each before a fresh page is touched.
  static constexpr unsigned kHomes = 8;

  /// Adds blocks from the part of the refill's home. Returns how many. pre: home < kHomes
  unsigned take(Refill& refill, From from = From::kSpans) {
    return take_from(refill.home, refill, from);
  }
  /// The same from another part that has blocks.
  unsigned take_from_others(Refill& refill);

  /// Whether blocks of the class come from mixed spans, and spans of its slots become mixed.
  [[nodiscard]] static constexpr bool serves(unsigned size_class) {
    return size_class <= MixedPart::kLists;
  }

  /// Whether the home's part has a free range that holds a block of the class. A guess without a
  /// lock.
  [[nodiscard]] bool may_serve(unsigned size_class, unsigned home = 0) const {
    return serves(size_class) && part_of(home).may_serve(size_class);
  }

  /// Takes blocks back. A pointer to no block of a mixed span is a misuse; it is reported and
  /// dropped.
  void give(void* const* pointers, unsigned count) { give(pointers, count, nullptr); }
  /// The same, except for blocks that the giver wants to keep (Kept). pre: count <= kPiece, if
  /// there is a `kept`
  void give(void* const* pointers, unsigned count, Kept* kept);
  /// Takes back a block of any part, for a caller that holds the lock `held`, or no lock.
  void give_one(void* pointer, Mutex* held);

  /// Makes a small span mixed, in the home's part. False when memory for its tables is refused;
  /// the span is then unchanged. With `lent`, the whole free pages of the span are given to the
  /// page heap, if at least one of them is backed; *lent is the number of backed ones. pre: the
  /// lock of the span's bin is held and the span is in none of its lists; slots <= kLargestBlock
  [[nodiscard]] bool convert(Span* span, unsigned home = 0, Pages* lent = nullptr);

  /// Bytes of the block at `address`, live or in a magazine; 0 when no block of a mixed span begins
  /// there. Any address is answered.
  [[nodiscard]] size_t block_bytes(uintptr_t address);
  /// The same for a caller with many addresses, some of which may no longer be blocks. pre:
  /// lock_all()
  [[nodiscard]] static size_t block_bytes_locked(uintptr_t address);

  /// Purges the free pages inside mixed spans. Returns how many.
  Pages compact();

  /// Gives the page heap whole free pages of the mixed spans of the part that can lend most, for
  /// the next request: about `wanted`, if the part can lend more than `more_than` bytes. Returns
  /// how many.
  Pages lend(Pages wanted, size_t more_than = 0);

  /// Call now and then. Gives the page heap unwanted whole free pages, at most as many as `looks`
  /// allow (MixedPart::lend_unwanted_locked()). True while there may be more.
  [[nodiscard]] bool lend_unwanted(bool period_ends, unsigned looks);

  /// The bytes of free ranges that a fall gives to the page heap. Takes no lock.
  [[nodiscard]] size_t fallen_bytes_hint() const;
  /// Gives them. `looks`: the most under one lock at once.
  void give_back_fall(unsigned looks);

  [[nodiscard]] MixedStats stats();
  /// Blocks of the class in mixed spans: live or in magazines.
  [[nodiscard]] size_t blocks(unsigned size_class);
  [[nodiscard]] bool is_valid();

  /// The bytes of all parts; the other members lie behind them.
  static constexpr size_t kPartsBytes = sizeof(MixedPart) * kHomes;

  [[nodiscard]] unsigned parts_in_use() const {
    // relaxed: a thread that looks too early misses spans that are made mixed there a moment later
    return 1u << doublings_.load(std::memory_order_relaxed);
  }
  /// pre: part < kHomes
  [[nodiscard]] const Mutex& mutex(unsigned part) const { return parts_[part].mutex(); }
  /// Uses twice as many parts, up to kHomes. This also happens by itself when threads contend.
  void use_more_parts();

  /// Takes all locks, in order: around fork(), and for callers that read all parts at once.
  void lock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void unlock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void reset_locks_after_fork();
  [[nodiscard]] bool is_any_locked();

 private:
  friend struct CounterFields;

  /// Runs act() under the part's lock, and returns its result. Then adds parts if threads contend
  /// for the lock.
  template <class Act>
  [[nodiscard]] unsigned in_part(MixedPart& part, Act act);
  unsigned take_from(unsigned home, Refill& refill, From from);
  void give_to(MixedPart& part, void** pointers, Span** spans, unsigned count, Kept* kept);
  void give_by_parts(void** pointers, Span** spans, unsigned count, Kept* kept);
  [[nodiscard]] MixedPart* part_named_by(const Span* span);
  [[nodiscard]] MixedPart& part_of(unsigned home) { return parts_[home & (parts_in_use() - 1)]; }
  [[nodiscard]] const MixedPart& part_of(unsigned home) const {
    return parts_[home & (parts_in_use() - 1)];
  }
  [[nodiscard]] PageHeap& pages() const {
    return LOAM_LIKELY(other_pages_ == nullptr) ? page_heap : *other_pages_;
  }
  /// Runs act() for each part in use, under its lock.
  template <class Do>
  void for_each_locked(Do act);

  MixedPart parts_[kHomes];
  // Last, beside the members that SmallHeap reads next. A heap without mixed spans reads nothing
  // else of this object.
  PageHeap* other_pages_ = nullptr;
  std::atomic<bool> used_{false};  // some span was or is mixed
  std::atomic<uint8_t> doublings_{0};
};
static_assert((MixedHeap::kHomes & (MixedHeap::kHomes - 1)) == 0, "reached by doubling");

}  // namespace loam
