// Entries that stand: the newest serves, the oldest goes.
#include "pages/standing_runs.h"

#include <gtest/gtest.h>

namespace loam {
namespace {

TEST(StandingRuns, TheNewestServesAndTheOldestGoes) {
  Span spans[4] = {};
  StandingRuns standing;
  EXPECT_EQ(standing.newest(), nullptr);
  EXPECT_EQ(standing.pop_older(UINT64_MAX), nullptr);
  for (unsigned i = 0; i < 4; ++i) standing.push(&spans[i], 10 * i);
  EXPECT_EQ(standing.newest(), &spans[3]);
  EXPECT_EQ(standing.pop_older(UINT64_MAX), &spans[0]);
  EXPECT_TRUE(standing.entries().is_valid());

  standing.pop_newest(&spans[2]);
  EXPECT_EQ(List<Span>::next(&spans[3]), &spans[2]) << "they stay linked";
  EXPECT_EQ(List<Span>::next(&spans[2]), nullptr);
  EXPECT_EQ(standing.newest(), &spans[1]);
  EXPECT_TRUE(standing.entries().is_valid());
}

TEST(StandingRuns, AnEntryGoesOnlyWhenItIsOldEnough) {
  Span spans[2] = {};
  StandingRuns standing;
  standing.push(&spans[0], 100);
  standing.push(&spans[1], 101);
  EXPECT_EQ(standing.pop_older(100), nullptr);
  EXPECT_EQ(standing.pop_older(101), &spans[0]);
  EXPECT_EQ(standing.pop_older(101), nullptr);
  EXPECT_EQ(standing.pop_older(102), &spans[1]);
  EXPECT_TRUE(standing.empty());
}

}  // namespace
}  // namespace loam
