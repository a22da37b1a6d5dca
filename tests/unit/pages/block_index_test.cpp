#include "pages/block_index.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "must_run.h"
#include "random.h"

namespace loam {
namespace {

struct Fixture {
  std::vector<Block> blocks = std::vector<Block>(64);
  std::unique_ptr<FreeIndex> index = std::make_unique<FreeIndex>();
};

TEST(BlockIndex, AnEmptyIndexHasNothing) {
  Fixture f;
  EXPECT_EQ(f.index->smallest(1), nullptr);
  EXPECT_EQ(f.index->smallest(kPagesPerBlock), nullptr);
  EXPECT_EQ(f.index->longest(), 0u);
  EXPECT_TRUE(f.index->is_valid());
}

TEST(BlockIndex, EveryLengthIsFoundByItselfAndByAllShorterRequests) {
  Fixture f;
  for (unsigned length = 1; length <= kPagesPerBlock; ++length) {
    f.index->place(&f.blocks[0], length);
    EXPECT_EQ(f.index->longest(), length);
    EXPECT_EQ(f.index->smallest(1), &f.blocks[0]);
    EXPECT_EQ(f.index->smallest(length), &f.blocks[0]);
    EXPECT_EQ(f.index->smallest(length + 1), nullptr);
  }
}

TEST(BlockIndex, RandomPlacesAgreeWithALinearSearch) {
  Fixture f;
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  std::vector<unsigned> bounds(f.blocks.size());
  test::MustRun none{"no place is long enough"};
  for (int step = 0; step < 20'000; ++step) {
    const size_t i = random.below(f.blocks.size());
    const unsigned length = random.chance(20) ? 0 : random.magnitude(kPagesPerBlock);
    f.index->place(&f.blocks[i], length);
    bounds[i] = length;
    const unsigned wanted = random.magnitude(kPagesPerBlock);
    unsigned expected = kPagesPerBlock + 1;
    for (const unsigned bound : bounds) {
      if (bound >= wanted) expected = std::min(expected, bound);
    }
    const Block* found = f.index->smallest(wanted);
    if (expected > kPagesPerBlock) {
      none.ran();
      ASSERT_EQ(found, nullptr);
    } else {
      ASSERT_NE(found, nullptr);
      ASSERT_EQ(found->free_bin, expected);
      ASSERT_EQ(bounds[static_cast<size_t>(found - f.blocks.data())], expected);
    }
    ASSERT_EQ(f.index->longest(), *std::max_element(bounds.begin(), bounds.end()));
    if (step % 100 == 0) {
      ASSERT_TRUE(f.index->is_valid());
    }
  }
}

TEST(BlockIndex, ABoundThatDisagreesWithItsListIsNotValid) {
  Fixture f;
  f.index->place(&f.blocks[0], 7);
  f.blocks[0].free_bin = 8;
  EXPECT_FALSE(f.index->is_valid());
}

TEST(BlockIndex, ABlockStandsInBothIndexesAtOnce) {
  Fixture f;
  const auto dirty = std::make_unique<DirtyIndex>();
  f.index->place(&f.blocks[0], 100);
  dirty->place(&f.blocks[0], 30);
  f.index->place(&f.blocks[0], 0);
  EXPECT_EQ(f.index->smallest(1), nullptr);
  EXPECT_EQ(dirty->smallest(30), &f.blocks[0]);
}

}  // namespace
}  // namespace loam
