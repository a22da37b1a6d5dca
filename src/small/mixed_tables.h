// The tables of a mixed span (mixed_part.h): which granules are free, and where blocks begin. Out
// of line, a cache line a page.
//
// If a span has few blocks, its record has room to name them. Such a span is sealed, and has no
// tables until a block is cut from it again. Code that needs the tables of a sealed span makes
// temporary ones (MixedView).
//
// Not thread-safe: the lock of the span's part covers them.
#pragma once

#include "base/bitmap.h"
#include "map/page_map.h"
#include "small/size_classes.h"

namespace loam {

inline constexpr unsigned kGranuleShift = 4;
inline constexpr size_t kGranuleBytes = size_t{1} << kGranuleShift;
inline constexpr unsigned kGranulesPerPage = kPageBytes / kGranuleBytes;

/// Blocks up to this size come from mixed spans, and only spans of such slots become mixed. Chosen:
/// spans of larger slots have whole free pages, or gaps in which no block fits (decision 43).
inline constexpr size_t kLargestMixedBlock = 8192;
inline constexpr unsigned kLargestMixedClass = class_for(kLargestMixedBlock);
static_assert(kSizeClasses[kLargestMixedClass].bytes == kLargestMixedBlock);

/// 64 granules of both tables. The words of a page are one cache line, so a free reads one line.
struct GranuleWord {
  uint64_t free;
  uint64_t start;

  [[nodiscard]] uint64_t borders() const { return free | start; }  // where a block ends
};
inline constexpr unsigned kWordsPerPage = kGranulesPerPage / 64;
static_assert(kWordsPerPage * sizeof(GranuleWord) == kCacheLine, "a page's words");

/// The bytes of the tables of a span of `pages` pages.
[[nodiscard]] constexpr size_t mixed_table_bytes(unsigned pages) {
  return pages * kWordsPerPage * sizeof(GranuleWord);
}

/// The word before and behind a span's words: no granule is free, and every block ends there.
inline constexpr GranuleWord kOutside = {0, ~uint64_t{0}};

/// 64 consecutive bits of two neighbouring words: from `bit` of the first word on; and up to `bit`
/// of the second word. pre: bit < 64
LOAM_INLINE uint64_t bits_from(uint64_t word, uint64_t next, unsigned bit) {
  return word >> bit | next << 1 << (63 - bit);
}
LOAM_INLINE uint64_t bits_before(uint64_t previous, uint64_t word, unsigned bit) {
  return previous >> bit | word << 1 << (63 - bit);
}

inline constexpr unsigned kMostGranules = kLargestMixedBlock / kGranuleBytes;  // of a block

struct GranuleLevels {
  uint8_t of[kMostGranules + 1];
};
constexpr GranuleLevels make_granule_levels() {
  GranuleLevels levels{};
  for (unsigned granules = 1; granules <= kMostGranules; ++granules) {
    const size_t bytes = granules * kGranuleBytes;
    const unsigned size_class = class_for(bytes);
    levels.of[granules] =
        static_cast<uint8_t>(size_class - (kSizeClasses[size_class].bytes > bytes));
  }
  return levels;
}
inline constexpr GranuleLevels kGranuleLevels = make_granule_levels();

/// The level of a free range: the largest class whose block it holds, 0 if it is empty.
[[nodiscard]] LOAM_INLINE unsigned level_of_range(unsigned granules) {
  return kGranuleLevels.of[granules < kMostGranules ? granules : kMostGranules];
}

/// The free granules of a span, as a bitmap of the size for the longest span.
struct FreeGranules : BitSearch<kMaxSpanPages * kGranulesPerPage, FreeGranules> {
  const GranuleWord* words;

  [[nodiscard]] LOAM_INLINE uint64_t word(unsigned w) const { return words[w].free; }
};

/// Whether the span has no tables: their address is even.
[[nodiscard]] LOAM_INLINE bool is_sealed(const Span* span) { return (span->mixed.tables & 1) != 0; }

/// A block of a sealed span, in 32 bits of the record.
struct SealedBlock {
  unsigned first;     ///< granule
  unsigned granules;  ///< 0 = there is no block

  /// The blocks take the place of the tables' address, and the words behind it.
  static constexpr unsigned kMost = 2 + sizeof Span{}.mixed.sealed / sizeof(uint32_t);
  static_assert(sizeof Span{}.mixed.tables == 2 * sizeof(uint32_t), "two blocks");

  static constexpr unsigned kFirstBits = 13;
  static_assert(kMaxSpanPages * kGranulesPerPage <= 1u << kFirstBits &&
                kMostGranules < 1u << (31 - kFirstBits));
  [[nodiscard]] constexpr uint32_t word() const {
    return 1 | first << 1 | granules << (1 + kFirstBits);
  }
  [[nodiscard]] static constexpr SealedBlock of(uint32_t word) {
    return {(word >> 1) & ((1u << kFirstBits) - 1), word >> (1 + kFirstBits)};
  }

  /// pre: is_sealed(span), place < kMost
  [[nodiscard]] static SealedBlock in(const Span* span, unsigned place) {
    return of(place < 2 ? static_cast<uint32_t>(span->mixed.tables >> (32 * place))
                        : span->mixed.sealed[place - 2]);
  }
};

/// The granules of the block of a sealed span that begins at `first`; 0 if none does.
[[nodiscard]] inline unsigned sealed_granules(const Span* span, unsigned first) {
  for (unsigned i = 0; i < SealedBlock::kMost; ++i) {
    const SealedBlock block = SealedBlock::in(span, i);
    if (block.granules != 0 && block.first == first) return block.granules;
  }
  return 0;
}

/// Seals the span with these blocks.
inline void seal_with(Span* span, const SealedBlock (&blocks)[SealedBlock::kMost]) {
  // release: a thread that reads the span as one of slots (seems_live()) and finds these words also
  // sees its new kind
  for (unsigned i = 2; i < SealedBlock::kMost; ++i) {
    __atomic_store_n(&span->mixed.sealed[i - 2], blocks[i].word(), __ATOMIC_RELEASE);
  }
  __atomic_store_n(&span->mixed.tables, blocks[0].word() | uintptr_t{blocks[1].word()} << 32,
                   __ATOMIC_RELEASE);
}

/// The tables of a span.
struct MixedTables {
  GranuleWord* word;
  unsigned words;

  /// pre: !is_sealed(span), or the tables are not read
  explicit MixedTables(const Span* span)
      : MixedTables(span, reinterpret_cast<GranuleWord*>(span->mixed.tables)) {}
  MixedTables(const Span* span, GranuleWord* its_word)
      : word(its_word), words(span->page_count * kWordsPerPage) {}

  [[nodiscard]] unsigned granules() const { return words * 64; }
  [[nodiscard]] bool starts(unsigned i) const { return (word[i >> 6].start >> (i & 63)) & 1; }
  [[nodiscard]] bool is_free(unsigned i) const { return (word[i >> 6].free >> (i & 63)) & 1; }

  /// The first granule at or after `from` whose bit is set in of(its word); granules() if there is
  /// none.
  template <class Of>
  [[nodiscard]] LOAM_INLINE unsigned find(unsigned from, Of of) const {
    return find_bit(from, words, [&](unsigned w) { return of(word[w]); });
  }
  [[nodiscard]] unsigned block_end(unsigned from) const {
    return find(from, [](const GranuleWord& w) { return w.borders(); });
  }
  [[nodiscard]] unsigned find_free(unsigned from) const {
    return find(from, [](const GranuleWord& w) { return w.free; });
  }
  [[nodiscard]] unsigned free_end(unsigned from) const {
    return find(from, [](const GranuleWord& w) { return ~w.free; });
  }

  void set_free(unsigned first, unsigned count) const {
    over_words(first, count, [this](unsigned w, uint64_t mask) { word[w].free |= mask; });
  }
  void set_used(unsigned first, unsigned count) const {
    over_words(first, count, [this](unsigned w, uint64_t mask) { word[w].free &= ~mask; });
  }
  void set_start(unsigned i) const { word[i >> 6].start |= uint64_t{1} << (i & 63); }

  /// The granules of the block that begins at `first`. The only branch is on whether it is longer
  /// than 64 granules. A branch on where a block ends, or on whether a range reaches into the next
  /// word, would be unpredictable.
  [[nodiscard]] LOAM_INLINE unsigned block_granules(unsigned first) const {
    const unsigned w = first >> 6, bit = first & 63;
    const GranuleWord* const next = w + 1 == words ? &kOutside : &word[w + 1];
    // The borders among the 64 granules behind the first one.
    const uint64_t rest = word[w].borders() >> bit >> 1 | next->borders() << (63 - bit);
    if (LOAM_UNLIKELY(rest == 0)) return long_block_granules(first);
    return lowest_bit(rest) + 1;
  }
  [[nodiscard]] LOAM_NOINLINE unsigned long_block_granules(unsigned first) const {
    const unsigned granules = block_end(first + 64) - first;
    return granules < kMostGranules ? granules : kMostGranules;  // against damage
  }

  /// Makes a block's granules free. Returns the level of the free range in which they are now; or
  /// the highest level, if `enough`, the span's level before, is the highest. pre: starts(first),
  /// granules == block_granules(first)
  [[nodiscard]] LOAM_INLINE unsigned free_block(unsigned first, unsigned granules,
                                                unsigned enough) const {
    const unsigned w = first >> 6, bit = first & 63;
    GranuleWord* const here = &word[w];
    here->start &= ~(uint64_t{1} << bit);
    if (LOAM_UNLIKELY(granules > 64)) return free_long_block(first, granules, enough);
    const bool is_last = w + 1 == words;
    const GranuleWord* const next = is_last ? &kOutside : here + 1;
    const GranuleWord* const previous = w == 0 ? &kOutside : here - 1;
    const uint64_t block = ~uint64_t{0} >> (64 - granules);
    const uint64_t low = here->free | block << bit, high = next->free | block >> 1 >> (63 - bit);
    const uint64_t before = bits_before(previous->free, here->free, bit);
    here->free = low;
    here[is_last ? 0 : 1].free = is_last ? low : high;
    const uint64_t used_before = ~before, used_from = ~bits_from(low, high, bit);
    if (LOAM_LIKELY(used_before != 0) && LOAM_LIKELY(used_from != 0)) {
      return level_of_range(63 - highest_bit(used_before) + lowest_bit(used_from));
    }
    return level_around(first, enough);
  }
  [[nodiscard]] LOAM_NOINLINE unsigned free_long_block(unsigned first, unsigned granules,
                                                       unsigned enough) const {
    set_free(first, granules);
    return level_around(first, enough);
  }
  /// pre: is_free(first)
  [[nodiscard]] LOAM_NOINLINE unsigned level_around(unsigned first, unsigned enough) const {
    if (enough == kLargestMixedClass) return enough;
    return level_of_range(free_end(first) - FreeGranules{{}, word}.run_begin(first));
  }

  /// Makes each of these pages one block that is never handed out, so that ranges and blocks end
  /// there.
  void mark_absent(uint32_t pages) const {
    for (; pages != 0; pages &= pages - 1) {
      const unsigned first = lowest_bit(pages) * kGranulesPerPage;
      set_used(first, kGranulesPerPage);
      set_start(first);
    }
  }
  /// Pages that are completely free, as a mask.
  [[nodiscard]] uint32_t free_pages() const {
    uint32_t pages = 0;
    for (unsigned w = 0; w < words; w += kWordsPerPage) {
      uint64_t all = ~uint64_t{0};
      for (unsigned i = 0; i < kWordsPerPage; ++i) all &= word[w + i].free;
      pages |= uint32_t{all == ~uint64_t{0}} << (w / kWordsPerPage);
    }
    return pages;
  }
  /// The level of the longest free range.
  [[nodiscard]] unsigned level() const {
    unsigned longest = 0;
    for (unsigned first = find_free(0), end; first < granules(); first = find_free(end)) {
      end = free_end(first);
      if (end - first > longest) longest = end - first;
    }
    return level_of_range(longest);
  }

  /// Fills the tables as those of a sealed span would be. pre: all words are zero
  void fill_from_sealed(const Span* span) const {
    set_free(0, granules());
    mark_absent(span->mixed.absent_pages);
    for (unsigned i = 0; i < SealedBlock::kMost; ++i) {
      const SealedBlock block = SealedBlock::in(span, i);
      if (block.granules == 0) continue;
      set_start(block.first);
      set_used(block.first, block.granules);
    }
  }
};

/// The tables of any mixed span, for as long as the view lives. For a sealed span they are a copy
/// that is not kept.
class MixedView {
 public:
  explicit MixedView(const Span* span) : tables(span, words_) {
    if (LOAM_LIKELY(!is_sealed(span))) {
      tables = MixedTables(span);
      return;
    }
    __builtin_memset(words_, 0, mixed_table_bytes(span->page_count));
    tables.fill_from_sealed(span);
  }
  MixedView(const MixedView&) = delete;
  MixedView& operator=(const MixedView&) = delete;

  MixedTables tables;

 private:
  GranuleWord words_[kMaxSpanPages * kWordsPerPage];
};

}  // namespace loam
