// The set of bins against a vector of bools.
#include "base/bin_set.h"

#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace loam {
namespace {

constexpr unsigned kBins = 576;

TEST(BinSet, AnEmptySetHasNoBin) {
  const BinSet<kBins> set;
  EXPECT_EQ(set.find_set(0), kBins);
  EXPECT_EQ(set.find_set(kBins - 1), kBins);
  EXPECT_EQ(set.last(), kBins);
  EXPECT_TRUE(set.is_valid());
}

TEST(BinSet, EveryBinIsFoundFromEveryBinBeforeIt) {
  for (unsigned bin = 0; bin < kBins; ++bin) {
    BinSet<kBins> set;
    set.set(bin);
    EXPECT_TRUE(set.test(bin));
    EXPECT_EQ(set.last(), bin);
    for (unsigned from = 0; from < kBins; ++from)
      ASSERT_EQ(set.find_set(from), from <= bin ? bin : kBins) << from;
    set.clear(bin);
    EXPECT_EQ(set.find_set(0), kBins);
    EXPECT_TRUE(set.is_valid());
  }
}

TEST(BinSet, RandomChangesAgreeWithALinearSearch) {
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  BinSet<kBins> set;
  std::vector<bool> model(kBins);
  for (int step = 0; step < 20'000; ++step) {
    const unsigned bin = static_cast<unsigned>(random.below(kBins));
    // Mostly few bins, so that whole words are empty.
    if (random.chance(step / 5000 * 10 + 5)) {
      set.set(bin);
      model[bin] = true;
    } else {
      set.clear(bin);
      model[bin] = false;
    }
    const unsigned from = static_cast<unsigned>(random.below(kBins));
    unsigned next = from, last = kBins;
    while (next < kBins && !model[next]) ++next;
    while (last != 0 && !model[last - 1]) --last;
    ASSERT_EQ(set.find_set(from), next);
    ASSERT_EQ(set.last(), last == 0 ? kBins : last - 1);
    ASSERT_EQ(set.test(bin), model[bin]);
    ASSERT_TRUE(set.is_valid());
  }
}

}  // namespace
}  // namespace loam
