// Mixed spans: sparse spans of one size class whose free slots were opened to blocks of every class.
//
// A program that frees nine blocks in ten and goes on with another size would otherwise keep both: the free
// slots of a span serve their own class only. When a bin needs memory and no backed run of its spans' length is free,
// sparse spans of other bins become mixed: neighbouring free slots are one range of bytes, and any class cuts blocks
// from it. Before that, backed free pages in shorter runs become mixed spans without a block.
//
//   granules (16 bytes):   0   1   2   3   4   5   6   7   8   9
//   free                   .   .   1   1   1   .   .   .   .   1     1: in no block
//   start                  1   .   .   .   .   1   .   1   .   .     1: a block begins
//
//   a block reaches from its start to the next start or free granule, so that both tables tell its size;
//   free_granules of a span = population of `free`;   start and free are disjoint
//
// The pages of a mixed span carry the class byte kMixedClass: free() pushes their blocks into a magazine of that
// number, from which malloc() never pops, and which comes here when it is full. A double free and a pointer into
// a block are told exactly, by the start bit.
//
// Thread-safe by its own lock, below the bins' locks and above the page heap's.
#pragma once

#include "map/page_map.h"
#include "os/mutex.h"
#include "pages/page_heap.h"
#include "small/size_classes.h"

namespace loam {

inline constexpr unsigned kGranuleShift = 4;
inline constexpr size_t kGranuleBytes = size_t{1} << kGranuleShift;
inline constexpr unsigned kGranulesPerPage = kPageBytes / kGranuleBytes;

struct MixedStats {
  size_t spans;
  size_t span_bytes;
  size_t free_bytes;
  size_t unbacked_pages;
  uint64_t converted;  ///< spans since the start
  uint64_t taken;      ///< blocks
  uint64_t given;
  uint64_t lock_acquisitions;
  uint64_t lock_contentions;
};

/// Gives back pages of a span in which nothing lives (a mask), in whole pages of the system, and marks them
/// unbacked. Returns how many. pre: the lock that covers the span's record is held
Pages purge_idle_pages(Span* span, uint32_t idle);

class MixedHeap {
 public:
  /// Over page_heap, all zero; or over another, in tests.
  constexpr MixedHeap() = default;
  constexpr explicit MixedHeap(PageHeap& pages) : other_pages_(&pages) {}

  /// Blocks up to this size come from mixed spans, and only spans of such slots become mixed: spans of larger
  /// slots have few, and empty soon.
  static constexpr size_t kLargestBlock = 1024;

  enum class From : uint8_t {
    kSpans,   ///< mixed spans as they are
    kBacked,  ///< and backed free pages in runs too short for a span of the class: they become mixed spans
  };
  /// Up to `wanted` blocks of the class; may be none. They stand in `out` last first, as from a bin.
  [[nodiscard]] unsigned take(unsigned size_class, void** out, unsigned wanted, From from = From::kSpans);

  /// Takes blocks back. What is no block of a mixed span is a misuse: reported, then dropped.
  void give(void* const* pointers, unsigned count);

  /// Makes a small span mixed. False when memory for its tables is refused; the span is then unchanged.
  /// pre: the lock of the span's bin is held and the span is in none of its lists; slots <= kLargestBlock
  [[nodiscard]] bool convert(Span* span);

  /// Bytes of the block at `address`, live or in a magazine; 0 when no block of a mixed span begins there. Any
  /// address is answered.
  [[nodiscard]] size_t block_bytes(uintptr_t address);

  /// Gives the free pages inside mixed spans back to the system. Returns how many.
  Pages compact();

  [[nodiscard]] MixedStats stats();
  /// Blocks of the class in mixed spans: live or in magazines.
  [[nodiscard]] size_t blocks(unsigned size_class);
  [[nodiscard]] bool is_valid();
  [[nodiscard]] Mutex& mutex() { return mutex_; }
  /// A guess without the lock: is there a free range that holds a block of the class?
  [[nodiscard]] bool may_serve(unsigned size_class) const {
    const size_t granules = kSizeClasses[size_class].bytes >> kGranuleShift;
    return granules <= kLists && (occupied_.load(std::memory_order_relaxed) >> (granules - 1)) != 0;
  }

 private:
  friend struct CounterFields;
  static constexpr unsigned kLists = kLargestBlock / kGranuleBytes;
  static_assert(kLists == 64, "one bit a list");
  // Blocks that are given at once. Chosen: their records and tables are a third of a first-level cache.
  static constexpr unsigned kPiece = 64;

  void open(Span* span, uint64_t* tables);
  bool add_backed(unsigned size_class);
  void place(Span* span, unsigned longest);
  void unlink(Span* span);
  unsigned carve(Span* span, unsigned granules, void** next, unsigned wanted);
  void refuse(const Span* span, const void* pointer);
  void move(Span* const* spans, const uint8_t* ranges, unsigned count, Span** gone);
  void give_some(void* const* pointers, unsigned count, Span** gone);
  void release(Span* gone);

  [[nodiscard]] PageHeap& pages() const { return LOAM_LIKELY(other_pages_ == nullptr) ? page_heap : *other_pages_; }

  List<Span> lists_[kLists];           // [k]: the longest free range has at most k + 1 granules; the last: or more
  List<Span> full_;
  size_t spans_ = 0;
  size_t span_pages_ = 0;
  size_t free_granules_ = 0;
  size_t unbacked_pages_ = 0;
  uint64_t converted_ = 0;
  uint64_t taken_ = 0;
  uint64_t given_ = 0;
  size_t blocks_[kSizeClassCount] = {};
  // Last, beside what SmallHeap looks at next: all that a heap without mixed spans looks at.
  PageHeap* other_pages_ = nullptr;
  Mutex mutex_;
  std::atomic<uint64_t> occupied_{0};  // bit k: lists_[k] is not empty
};

}  // namespace loam
