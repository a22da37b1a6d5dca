// A bitmap of N bits with the run operations that a slab needs. N is a multiple of 64.
//
// Runs are maximal sequences of set bits; for_each_run visits them in ascending order in
// O(words + runs). Not thread-safe: the owner's lock covers it.
#pragma once

#include "base/bits.h"

namespace loam {

/// The searches, over words that `Bits::word(w)` gives: the words of one bitmap, or of two at once
/// without a copy.
template <unsigned N, class Bits>
struct BitSearch {
  static_assert(N % 64 == 0, "whole words only: run scans read words");
  static constexpr unsigned kWords = N / 64;

  /// The first set bit at or after `from`, or N.
  [[nodiscard]] LOAM_INLINE unsigned find_set(unsigned from) const {
    return find_bit(from, kWords, [this](unsigned w) { return word(w); });
  }

  /// The first clear bit at or after `from`, or N.
  [[nodiscard]] LOAM_INLINE unsigned find_clear(unsigned from) const {
    return find_bit(from, kWords, [this](unsigned w) { return ~word(w); });
  }

  /// Where the run of set bits that ends at `from` (exclusive) begins: one past the last clear bit
  /// before `from`. Returns `from` when bit from - 1 is clear or from is 0.
  [[nodiscard]] unsigned run_begin(unsigned from) const {
    while (from != 0) {
      const unsigned w = (from - 1) >> 6;
      const unsigned bit = (from - 1) & 63;
      const uint64_t clear = ~word(w) & (~uint64_t{0} >> (63 - bit));
      if (clear != 0) return w * 64 + highest_bit(clear) + 1;
      from = w * 64;
    }
    return 0;
  }

  /// Calls visit(first, length) for each maximal run of set bits.
  template <class Visit>
  LOAM_INLINE void for_each_run(Visit visit) const {
    unsigned first = find_set(0);
    while (first < N) {
      const unsigned end = find_clear(first);
      visit(first, end - first);
      first = find_set(end);
    }
  }

 private:
  LOAM_INLINE uint64_t word(unsigned w) const { return static_cast<const Bits*>(this)->word(w); }
};

template <unsigned N>
struct Bitmap : BitSearch<N, Bitmap<N>> {
  static constexpr unsigned kWords = N / 64;

  uint64_t words[kWords];

  [[nodiscard]] LOAM_INLINE uint64_t word(unsigned w) const { return words[w]; }
  [[nodiscard]] bool test(unsigned i) const { return (words[i >> 6] >> (i & 63)) & 1; }
  void set(unsigned i) { words[i >> 6] |= uint64_t{1} << (i & 63); }
  void clear(unsigned i) { words[i >> 6] &= ~(uint64_t{1} << (i & 63)); }

  void set_range(unsigned first, unsigned count) {
    over_words(first, count, [this](unsigned w, uint64_t mask) { words[w] |= mask; });
  }
  void clear_range(unsigned first, unsigned count) {
    over_words(first, count, [this](unsigned w, uint64_t mask) { words[w] &= ~mask; });
  }
  /// The bits of [first, first + count), the first one lowest. pre: 1 <= count <= 32
  [[nodiscard]] uint32_t bits_at(unsigned first, unsigned count) const {
    const unsigned w = first >> 6, bit = first & 63;
    uint64_t bits = words[w] >> bit;
    if (bit + count > 64) bits |= words[w + 1] << (64 - bit);
    return static_cast<uint32_t>(bits & bit_range(0, count));
  }

  [[nodiscard]] unsigned count_range(unsigned first, unsigned count) const {
    unsigned total = 0;
    over_words(first, count,
               [&](unsigned w, uint64_t mask) { total += count_bits(words[w] & mask); });
    return total;
  }

  [[nodiscard]] unsigned count() const {
    unsigned total = 0;
    for (uint64_t word : words) total += count_bits(word);
    return total;
  }
};

/// The bits that are set in both of two bitmaps at the time of each look. Holds references.
template <unsigned N>
struct Both : BitSearch<N, Both<N>> {
  const Bitmap<N>& a;
  const Bitmap<N>& b;

  Both(const Bitmap<N>& first, const Bitmap<N>& second) : a(first), b(second) {}
  [[nodiscard]] LOAM_INLINE uint64_t word(unsigned w) const { return a.words[w] & b.words[w]; }

  /// The bits as they are now.
  [[nodiscard]] Bitmap<N> copy() const {
    Bitmap<N> result;
    for (unsigned w = 0; w < Bitmap<N>::kWords; ++w) result.words[w] = word(w);
    return result;
  }
  [[nodiscard]] unsigned count() const {
    unsigned total = 0;
    for (unsigned w = 0; w < Bitmap<N>::kWords; ++w) total += count_bits(word(w));
    return total;
  }
};

}  // namespace loam
