// Which of N bins are in use: a bitmap, and a word that says which of its words are not zero, so
// that a search reads three words at most, however far the next bin is.
//
//   words_[w] bit b  <=>  bin 64 * w + b is in use
//   used_ bit w      <=>  words_[w] != 0
//
// Who changes it holds its owner's lock. Who searches without it gets an answer that was true of
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

  /// The first one in use from `from` on, or N. pre: from < N
  [[nodiscard]] LOAM_INLINE unsigned find_set(unsigned from) const {
    LOAM_ASSERT(from < N);
    unsigned w = from / 64;
    uint64_t word = load(words_[w]) & (~uint64_t{0} << (from % 64));
    if (word == 0) {
      const uint64_t later = load(used_) & (~uint64_t{1} << w);
      if (later == 0) return N;
      w = lowest_bit(later);
      word = load(words_[w]);
      if (LOAM_UNLIKELY(word == 0)) return N;  // cleared since: only without the lock
    }
    return w * 64 + lowest_bit(word);
  }

  /// The last one in use, or N.
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
  // relaxed: a search without the lock is for a hint, nothing is reached by it
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
