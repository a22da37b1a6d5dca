// Pure searches in a slab's bitmap of candidate pages: where does a run of n pages go?
#pragma once

#include "map/records.h"

namespace loam {

using PageBits = Bitmap<kPagesPerSlab>;

/// Result of a search: the place, and the longest run left in the bitmap once it is taken.
struct Fit {
  unsigned first = 0;
  bool found = false;
  unsigned longest_left = 0;
};

/// The smallest run of set bits that holds `count` pages at a multiple of `alignment` (in pages, a
/// power of two), lowest address first among equals. O(runs).
///
/// Best fit rather than first fit: the scan sees every run anyway, because it computes
/// longest_left.
template <class Bits>
[[nodiscard]] inline Fit best_fit(const Bits& bits, unsigned count, unsigned alignment) {
  Fit fit;
  unsigned best_first = 0, best_length = kPagesPerSlab + 1, others = 0;
  bits.for_each_run([&](unsigned first, unsigned length) {
    const unsigned start = (first + alignment - 1) & ~(alignment - 1);
    if (start + count <= first + length && length < best_length) {
      if (best_length <= kPagesPerSlab && best_length > others) others = best_length;
      best_first = first;
      best_length = length;
      fit.first = start;
      fit.found = true;
    } else if (length > others) {
      others = length;
    }
  });
  fit.longest_left = others;
  if (fit.found) {
    const unsigned before = fit.first - best_first;
    const unsigned after = best_first + best_length - (fit.first + count);
    if (before > fit.longest_left) fit.longest_left = before;
    if (after > fit.longest_left) fit.longest_left = after;
  }
  return fit;
}

template <class Bits>
[[nodiscard]] inline unsigned longest_run(const Bits& bits) {
  unsigned longest = 0;
  bits.for_each_run([&](unsigned, unsigned length) {
    if (length > longest) longest = length;
  });
  return longest;
}

/// The free pages of a slab that are backed, as they are at each look.
[[nodiscard]] LOAM_INLINE Both<kPagesPerSlab> dirty_bits(const Slab* slab) {
  return {slab->free, slab->backed};
}

/// Length of the run of set bits around [first, first + count). pre: that range is set
template <class Bits>
[[nodiscard]] inline unsigned run_around(const Bits& bits, unsigned first, unsigned count) {
  return bits.find_clear(first + count - 1) - bits.run_begin(first);
}

}  // namespace loam
