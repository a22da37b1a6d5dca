// Which of a region's records are free: the lowest is handed out next, in three steps whatever the rest is.
//
//   bits[w] bit b       <=>  record 64 * w + b + 1 is free
//   words_[w] bit b     <=>  bits[64 * w + b] != 0
//   groups_ bit g       <=>  words_[g] != 0
//
// Not a list through the records: that hands them out the other way round, and after some rounds of a program that builds
// up and tears down in any order at all. Then who walks through spans in order walks through their records at random
// (decision 38).
#pragma once

#include "base/bits.h"
#include "base/units.h"

namespace loam {

class FreeRecords {
 public:
  /// The first level, which its owner keeps where nothing else lies: most programs touch little of it.
  using Bits = uint64_t[kPagesPerRegion / 64];

  [[nodiscard]] bool empty() const { return groups_ == 0; }

  /// pre: 1 <= number <= kPagesPerRegion
  LOAM_INLINE void add(Bits& bits, uint32_t number) {
    const uint32_t n = number - 1;
    bits[n / 64] |= uint64_t{1} << (n % 64);
    words_[n / 4096] |= uint64_t{1} << (n / 64 % 64);
    groups_ |= uint64_t{1} << (n / 4096);
  }

  /// The lowest one, which is free no more. pre: !empty()
  [[nodiscard]] LOAM_INLINE uint32_t take(Bits& bits) {
    const unsigned group = lowest_bit(groups_);
    const unsigned w = group * 64 + lowest_bit(words_[group]);
    const unsigned n = w * 64 + lowest_bit(bits[w]);
    bits[w] &= bits[w] - 1;
    if (bits[w] == 0) {
      words_[group] &= words_[group] - 1;
      if (words_[group] == 0) groups_ &= groups_ - 1;
    }
    return n + 1;
  }

  /// O(pages of a region / 64)
  [[nodiscard]] bool is_valid(const Bits& bits) const {
    for (unsigned group = 0; group < 64; ++group) {
      uint64_t word = 0;
      for (unsigned w = 0; w < 64; ++w) word |= uint64_t{bits[group * 64 + w] != 0} << w;
      if (word != words_[group] || ((groups_ >> group) & 1) != (word != 0)) return false;
    }
    return true;
  }

 private:
  uint64_t groups_;
  uint64_t words_[64];
};
static_assert(kPagesPerRegion == 64 * 64 * 64, "three levels");

}  // namespace loam
