#include "pages/slab_index.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "must_run.h"
#include "random.h"

namespace loam {
namespace {

struct Fixture {
  std::vector<Slab> slabs = std::vector<Slab>(64);
  std::unique_ptr<FreeIndex> index = std::make_unique<FreeIndex>();
};

TEST(SlabIndex, AnEmptyIndexHasNothing) {
  Fixture f;
  EXPECT_EQ(f.index->smallest(1), nullptr);
  EXPECT_EQ(f.index->smallest(kPagesPerSlab), nullptr);
  EXPECT_EQ(f.index->longest(), 0u);
  EXPECT_TRUE(f.index->is_valid());
}

TEST(SlabIndex, EveryLengthIsFoundByItselfAndByAllShorterRequests) {
  Fixture f;
  for (unsigned length = 1; length <= kPagesPerSlab; ++length) {
    f.index->place(&f.slabs[0], length);
    EXPECT_EQ(f.index->longest(), length);
    EXPECT_EQ(f.index->smallest(1), &f.slabs[0]);
    EXPECT_EQ(f.index->smallest(length), &f.slabs[0]);
    EXPECT_EQ(f.index->smallest(length + 1), nullptr);
  }
}

TEST(SlabIndex, RandomPlacesAgreeWithALinearSearch) {
  Fixture f;
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  std::vector<unsigned> bounds(f.slabs.size());
  test::MustRun none{"no place is long enough"};
  for (int step = 0; step < 20'000; ++step) {
    const size_t i = random.below(f.slabs.size());
    const unsigned length = random.chance(20) ? 0 : random.magnitude(kPagesPerSlab);
    f.index->place(&f.slabs[i], length);
    bounds[i] = length;
    const unsigned wanted = random.magnitude(kPagesPerSlab);
    unsigned expected = kPagesPerSlab + 1;
    for (const unsigned bound : bounds) {
      if (bound >= wanted) expected = std::min(expected, bound);
    }
    const Slab* found = f.index->smallest(wanted);
    if (expected > kPagesPerSlab) {
      none.ran();
      ASSERT_EQ(found, nullptr);
    } else {
      ASSERT_NE(found, nullptr);
      ASSERT_EQ(found->free_bin, expected);
      ASSERT_EQ(bounds[static_cast<size_t>(found - f.slabs.data())], expected);
    }
    ASSERT_EQ(f.index->longest(), *std::max_element(bounds.begin(), bounds.end()));
    if (step % 100 == 0) {
      ASSERT_TRUE(f.index->is_valid());
    }
  }
}

TEST(SlabIndex, ABoundThatDisagreesWithItsListIsNotValid) {
  Fixture f;
  f.index->place(&f.slabs[0], 7);
  f.slabs[0].free_bin = 8;
  EXPECT_FALSE(f.index->is_valid());
}

TEST(SlabIndex, ABlockStandsInBothIndexesAtOnce) {
  Fixture f;
  const auto dirty = std::make_unique<DirtyIndex>();
  f.index->place(&f.slabs[0], 100);
  dirty->place(&f.slabs[0], 30);
  f.index->place(&f.slabs[0], 0);
  EXPECT_EQ(f.index->smallest(1), nullptr);
  EXPECT_EQ(dirty->smallest(30), &f.slabs[0]);
}

}  // namespace
}  // namespace loam
