#include "base/bits.h"

#include <gtest/gtest.h>

#include "base/units.h"
#include "random.h"

namespace loam {
namespace {

TEST(Bits, LowestAndHighestAgreeWithALoopOverEveryPairOfBits) {
  for (unsigned low = 0; low < 64; ++low) {
    for (unsigned high = low; high < 64; ++high) {
      const uint64_t word = (uint64_t{1} << low) | (uint64_t{1} << high);
      EXPECT_EQ(lowest_bit(word), low);
      EXPECT_EQ(highest_bit(word), high);
      EXPECT_EQ(count_bits(word), low == high ? 1u : 2u);
    }
  }
  EXPECT_EQ(count_bits(0), 0u);
}

TEST(Bits, ARangeHasExactlyItsBitsForEveryStartAndLength) {
  for (unsigned first = 0; first < 64; ++first) {
    for (unsigned count = 1; first + count <= 64; ++count) {
      uint64_t expected = 0;
      for (unsigned i = 0; i < count; ++i) expected |= uint64_t{1} << (first + i);
      ASSERT_EQ(bit_range(first, count), expected) << "first " << first << " count " << count;
    }
  }
}

TEST(Bits, SearchesAndRangesOverWordsAgreeWithALoopOverBits) {
  constexpr unsigned kWords = 3, kBits = 64 * kWords;
  test::Random random = test::seeded();
  LOAM_TRACE_SEED(random);
  for (int i = 0; i < 300; ++i) {
    uint64_t words[kWords];
    // Many set bits, or few.
    for (uint64_t& word : words)
      word = i % 2 == 0 ? random.next() | random.next() : random.next() & 1;
    const unsigned first = random.below(kBits), count = random.below(kBits - first) + 1;
    unsigned found = first, seen = 0;
    bool all = true;
    for (unsigned bit = first; bit < first + count; ++bit)
      all = all && ((words[bit / 64] >> (bit % 64)) & 1) != 0;
    while (found < kBits && ((words[found / 64] >> (found % 64)) & 1) == 0) ++found;
    ASSERT_EQ(find_bit(first, kWords, [&](unsigned w) { return words[w]; }), found);
    ASSERT_EQ(all_bits(words, first, count), all);
    over_words(first, count, [&](unsigned w, uint64_t mask) {
      ASSERT_EQ(w, (first + seen) / 64);
      ASSERT_EQ(lowest_bit(mask), (first + seen) % 64);
      seen += count_bits(mask);
      words[w] |= mask;
    });
    ASSERT_EQ(seen, count);
    ASSERT_TRUE(all_bits(words, first, count));
  }
  const uint64_t none[kWords] = {};
  EXPECT_EQ(find_bit(kBits, kWords, [&](unsigned w) { return ~none[w]; }), kBits);
}

TEST(Bits, RotatingMovesLowBitsToTheTop) {
  EXPECT_EQ(rotate_right(1, 4), uint64_t{1} << 60);
  EXPECT_EQ(rotate_right(0xf0, 4), 0xfu);
  test::Random random = test::seeded();
  LOAM_TRACE_SEED(random);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t word = random.next();
    const unsigned by = random.between(1, 63);
    ASSERT_EQ(rotate_right(word, by), (word >> by) | (word << (64 - by)));
  }
}

TEST(Units, PagesCoverBytesWithoutAPageTooMany) {
  EXPECT_EQ(Pages::covering(0).count, 0u);
  EXPECT_EQ(Pages::covering(1).count, 1u);
  EXPECT_EQ(Pages::covering(kPageBytes).count, 1u);
  EXPECT_EQ(Pages::covering(kPageBytes + 1).count, 2u);
  EXPECT_EQ(Pages::covering(SIZE_MAX - kPageBytes).count, (SIZE_MAX >> kPageShift));
  EXPECT_EQ(Pages(3).bytes(), 3 * kPageBytes);
}

TEST(Units, RoundingUpReachesTheNextMultipleOnly) {
  for (size_t power = 1; power <= 4096; power *= 2) {
    for (size_t n = 0; n <= 3 * power; n += power / 8 + 1) {
      const size_t rounded = round_up(n, power);
      ASSERT_EQ(rounded % power, 0u);
      ASSERT_GE(rounded, n);
      ASSERT_LT(rounded - n, power);
    }
  }
}

TEST(Units, OnlyPowersOfTwoAreCalledPowersOfTwo) {
  EXPECT_FALSE(is_power_of_two(0));
  for (unsigned shift = 0; shift < 64; ++shift) {
    EXPECT_TRUE(is_power_of_two(size_t{1} << shift));
    if (shift >= 2) {
      EXPECT_FALSE(is_power_of_two((size_t{1} << shift) + 1));
    }
  }
}

}  // namespace
}  // namespace loam
