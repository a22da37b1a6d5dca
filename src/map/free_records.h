// Which of a region's records are free. The lowest free record is handed out next, in three steps
// whatever the number of records.
//
//   bits[w] bit b   <=>  record 64 * w + b + 1 is free
//   words_ has w    <=>  bits[w] != 0
//
// A list through the records was rejected: it hands them out in reverse order, and in random order
// after a program has built up and torn down a few times. A walk over spans in order of address
// would then visit their records at random (decision 47).
#pragma once

#include "base/bin_set.h"
#include "base/units.h"

namespace loam {

class FreeRecords {
 public:
  /// The first level. Its owner keeps it where nothing else lies, because most programs touch
  /// little of it.
  using Bits = uint64_t[kPagesPerRegion / 64];

  [[nodiscard]] bool empty() const { return words_.empty(); }

  /// pre: 1 <= number <= kPagesPerRegion
  LOAM_INLINE void add(Bits& bits, uint32_t number) {
    const uint32_t n = number - 1;
    bits[n / 64] |= uint64_t{1} << (n % 64);
    words_.set(n / 64);
  }

  /// Returns the lowest free record, which is then used. pre: !empty()
  [[nodiscard]] LOAM_INLINE uint32_t take(Bits& bits) {
    const unsigned w = words_.find_set(0);
    const unsigned n = w * 64 + lowest_bit(bits[w]);
    bits[w] &= bits[w] - 1;
    if (bits[w] == 0) words_.clear(w);
    return n + 1;
  }

  /// True if `count` records from `number` on are all free. pre: 1 <= number, and the last one <=
  /// kPagesPerRegion
  [[nodiscard]] bool has_all(const Bits& bits, uint32_t number, uint32_t count) const {
    return all_bits(bits, number - 1, count);
  }

  /// O(pages of a region / 64)
  [[nodiscard]] bool is_valid(const Bits& bits) const {
    for (unsigned w = 0; w < kPagesPerRegion / 64; ++w) {
      if (words_.test(w) != (bits[w] != 0)) return false;
    }
    return words_.is_valid();
  }

 private:
  BinSet<kPagesPerRegion / 64> words_;
};

}  // namespace loam
