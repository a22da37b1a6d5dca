// Bit tricks on one word. Every function has a defined result for every value that its pre line
// admits.
#pragma once

#include <bit>

#include "base/config.h"

namespace loam {

/// The lowest set bit's number. pre: word != 0
[[nodiscard]] LOAM_INLINE unsigned lowest_bit(uint64_t word) {
  return static_cast<unsigned>(__builtin_ctzll(word));
}

/// The highest set bit's number. pre: word != 0
[[nodiscard]] LOAM_INLINE unsigned highest_bit(uint64_t word) {
  return 63u - static_cast<unsigned>(__builtin_clzll(word));
}

[[nodiscard]] LOAM_INLINE unsigned count_bits(uint64_t word) {
#if defined(__x86_64__) && !defined(__POPCNT__)
  // The first x86-64 processors lack the instruction, and the compiler replaces it by a call that
  // reads a table. So this sums sideways: pairs, nibbles, bytes, then all bytes by one
  // multiplication.
  word -= (word >> 1) & 0x5555555555555555u;
  word = (word & 0x3333333333333333u) + ((word >> 2) & 0x3333333333333333u);
  word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return static_cast<unsigned>((word * 0x0101010101010101u) >> 56);
#else
  return static_cast<unsigned>(__builtin_popcountll(word));
#endif
}

/// A word with bits [first, first + count) set. pre: count >= 1, first + count <= 64
[[nodiscard]] constexpr uint64_t bit_range(unsigned first, unsigned count) {
  return (~uint64_t{0} >> (64 - count)) << first;
}

/// The first set bit at or after `from` of the words that word(w) gives; 64 * words if there is
/// none.
template <class Word>
[[nodiscard]] LOAM_INLINE unsigned find_bit(unsigned from, unsigned words, Word word) {
  unsigned w = from >> 6;
  if (w >= words) return words * 64;
  uint64_t bits = word(w) & (~uint64_t{0} << (from & 63));
  while (bits == 0) {
    if (++w == words) return words * 64;
    bits = word(w);
  }
  return w * 64 + lowest_bit(bits);
}

/// Calls op(w, mask) for each word w in which bits of [first, first + count) lie; `mask` has these.
template <class Op>
LOAM_INLINE void over_words(unsigned first, unsigned count, Op op) {
  for (unsigned w = first >> 6, bit = first & 63; count != 0; ++w, bit = 0) {
    const unsigned here = count < 64 - bit ? count : 64 - bit;
    op(w, bit_range(bit, here));
    count -= here;
  }
}

/// Whether all bits of [first, first + count) are set.
[[nodiscard]] inline bool all_bits(const uint64_t* words, unsigned first, unsigned count) {
  bool all = true;
  over_words(first, count, [&](unsigned w, uint64_t mask) { all &= (words[w] & mask) == mask; });
  return all;
}

/// Calls visit(first, length, bits) for each maximal run of set bits, lowest first; `bits` is the
/// run's mask.
template <class Visit>
LOAM_INLINE void for_each_run(uint32_t mask, Visit visit) {
  while (mask != 0) {
    const unsigned first = lowest_bit(mask);
    const unsigned length = lowest_bit(~(uint64_t{mask} >> first));
    const uint32_t run = static_cast<uint32_t>(bit_range(first, length));
    mask &= ~run;
    visit(first, length, run);
  }
}

[[nodiscard]] LOAM_INLINE uint64_t rotate_right(uint64_t word, unsigned by) {
  return std::rotr(word, static_cast<int>(by));
}

/// The same address, but the compiler forgets how it was computed. It then reaches each field from
/// this address and does not compute the address again for each. For elements of tables of long
/// records.
template <class T>
[[nodiscard]] LOAM_INLINE T* one_address(T* address) {
  asm("" : "+r"(address));
  return address;
}

}  // namespace loam
