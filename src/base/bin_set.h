// Set of the used ones of N bins: a bitmap, and a word that says which of the bitmap's words are
// not zero. So a search reads at most three words, however far the next used bin is.
//
//   words_[w] bit b  <=>  bin 64 * w + b is in use
//   used_ bit w      <=>  words_[w] != 0
//
// A change requires the owner's lock. A search without the lock gets an answer that was true of
// each bin at some moment.
#pragma once

#include "base/bits.h"
#include "base/check.h"

namespace loam {

template <unsigned N>
class BinSet {
  static_assert(N % 64 == 0 && N / 64 <= 64, "whole words, and one word to name them");

 public:
  [[nodiscard]] bool empty() const { return used_ == 0; }
  [[nodiscard]] bool test(unsigned bin) const { return (words_[bin / 64] >> (bin % 64)) & 1; }

  LOAM_INLINE void set(unsigned bin) {
    store(words_[bin / 64], words_[bin / 64] | uint64_t{1} << (bin % 64));
    store(used_, used_ | uint64_t{1} << (bin / 64));
  }

  LOAM_INLINE void clear(unsigned bin) {
    const uint64_t word = words_[bin / 64] & ~(uint64_t{1} << (bin % 64));
    store(words_[bin / 64], word);
    if (word == 0) store(used_, used_ & ~(uint64_t{1} << (bin / 64)));
  }

  /// The first used bin from `from` on, or N. pre: from < N
  [[nodiscard]] LOAM_INLINE unsigned find_set(unsigned from) const {
    LOAM_ASSERT(from < N);
    unsigned w = from / 64;
    uint64_t word = load(words_[w]) & (~uint64_t{0} << (from % 64));
    if (word == 0) {
      const uint64_t later = load(used_) & (~uint64_t{1} << w);
      if (later == 0) return N;
      w = lowest_bit(later);
      word = load(words_[w]);
      if (LOAM_UNLIKELY(word == 0)) return N;  // a bin was cleared meanwhile: only without the lock
    }
    return w * 64 + lowest_bit(word);
  }

  /// The last used bin, or N.
  [[nodiscard]] unsigned last() const {
    if (used_ == 0) return N;
    const unsigned w = highest_bit(used_);
    return w * 64 + highest_bit(words_[w]);
  }

  [[nodiscard]] bool is_valid() const {
    for (unsigned w = 0; w < 64; ++w) {
      if (((used_ >> w) & 1) != (w < N / 64 && words_[w] != 0)) return false;
    }
    return true;
  }

 private:
  // relaxed: a search without the lock gives only a hint; no other data is read because of it
  static LOAM_INLINE uint64_t load(const uint64_t& word) {
    return __atomic_load_n(&word, __ATOMIC_RELAXED);
  }
  static LOAM_INLINE void store(uint64_t& word, uint64_t value) {
    __atomic_store_n(&word, value, __ATOMIC_RELAXED);
  }

  uint64_t words_[N / 64] = {};
  uint64_t used_ = 0;
};

}  // namespace loam
