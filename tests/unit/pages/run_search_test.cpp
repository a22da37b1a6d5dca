// The search for a run, compared with the plainest possible one.
#include "pages/run_search.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace loam {
namespace {

struct Stretch {
  unsigned first, length;
};

std::vector<Stretch> stretches_of(const PageBits& bits) {
  std::vector<Stretch> result;
  for (unsigned i = 0; i < kPagesPerSlab; ++i) {
    if (!bits.test(i)) continue;
    if (i == 0 || !bits.test(i - 1)) result.push_back({i, 0});
    ++result.back().length;
  }
  return result;
}

unsigned naive_longest(const PageBits& bits) {
  unsigned longest = 0;
  for (const Stretch& s : stretches_of(bits)) longest = std::max(longest, s.length);
  return longest;
}

Fit naive_fit(const PageBits& bits, unsigned count, unsigned alignment) {
  Fit fit;
  unsigned best = kPagesPerSlab + 1;
  for (const Stretch& s : stretches_of(bits)) {
    for (unsigned start = 0; start + count <= kPagesPerSlab; start += alignment) {
      if (start < s.first || start + count > s.first + s.length) continue;
      if (s.length < best) {
        best = s.length;
        fit.found = true;
        fit.first = start;
      }
      break;
    }
  }
  PageBits left = bits;
  if (fit.found) left.clear_range(fit.first, count);
  fit.longest_left = naive_longest(left);
  return fit;
}

void expect_same(const PageBits& bits, unsigned count, unsigned alignment) {
  const Fit fit = best_fit(bits, count, alignment);
  const Fit expected = naive_fit(bits, count, alignment);
  ASSERT_EQ(fit.found, expected.found) << count << " at " << alignment;
  if (fit.found) {
    ASSERT_EQ(fit.first, expected.first) << count << " at " << alignment;
  }
  ASSERT_EQ(fit.longest_left, expected.longest_left) << count << " at " << alignment;
}

PageBits random_bits(test::Random& random) {
  PageBits bits{};
  const unsigned average = 1 + random.magnitude(200);
  bool value = random.chance(50);
  for (unsigned i = 0; i < kPagesPerSlab;) {
    const unsigned length = std::min(random.magnitude(average), kPagesPerSlab - i);
    if (value) bits.set_range(i, length);
    value = !value;
    i += length;
  }
  return bits;
}

TEST(RunSearch, EmptyAndFullBlocksAreSearchedRight) {
  PageBits empty{}, full{};
  full.set_range(0, kPagesPerSlab);
  for (unsigned alignment = 1; alignment <= kPagesPerSlab; alignment *= 2) {
    for (const unsigned count : {1u, 2u, 63u, 64u, 65u, 511u, 512u}) {
      EXPECT_FALSE(best_fit(empty, count, alignment).found);
      expect_same(full, count, alignment);
      EXPECT_EQ(best_fit(full, count, alignment).first, 0u);
    }
  }
}

TEST(RunSearch, TheSmallestRunThatFitsIsTakenAndTheLowestAmongEquals) {
  PageBits bits{};
  bits.set_range(10, 20);
  bits.set_range(100, 8);
  bits.set_range(200, 8);
  bits.set_range(300, 9);
  EXPECT_EQ(best_fit(bits, 8, 1).first, 100u);
  EXPECT_EQ(best_fit(bits, 9, 1).first, 300u);
  EXPECT_EQ(best_fit(bits, 10, 1).first, 10u);
  EXPECT_EQ(best_fit(bits, 8, 8).first, 200u) << "the aligned one among the smallest";
  EXPECT_FALSE(best_fit(bits, 21, 1).found);
}

TEST(RunSearch, RandomBlocksAgreeWithTheNaiveSearch) {
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  for (int i = 0; i < 4000; ++i) {
    const PageBits bits = random_bits(random);
    ASSERT_EQ(longest_run(bits), naive_longest(bits));
    for (int k = 0; k < 4; ++k) {
      expect_same(bits, random.magnitude(kPagesPerSlab), 1u << random.below(10));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(RunSearch, TheRunAroundAFreedRangeIsItsWholeStretch) {
  test::Random random = test::seeded(2);
  LOAM_TRACE_SEED(random);
  for (int i = 0; i < 2000; ++i) {
    const PageBits bits = random_bits(random);
    for (const Stretch& s : stretches_of(bits)) {
      const unsigned first = random.between(s.first, s.first + s.length - 1);
      const unsigned count = random.between(1, s.first + s.length - first);
      ASSERT_EQ(run_around(bits, first, count), s.length);
    }
  }
}

TEST(RunSearch, BothIsTheIntersection) {
  test::Random random = test::seeded(3);
  LOAM_TRACE_SEED(random);
  const PageBits a = random_bits(random), b = random_bits(random);
  const PageBits c = Both<kPagesPerSlab>(a, b).copy();
  for (unsigned i = 0; i < kPagesPerSlab; ++i) ASSERT_EQ(c.test(i), a.test(i) && b.test(i));
}

}  // namespace
}  // namespace loam
