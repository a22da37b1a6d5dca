// Entries that wait whole: the newest one serves, and the oldest one is removed.
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

TEST(StandingSpans, EachLengthServesItselfAndTheLongestGoesFirst) {
  Span spans[5] = {};
  const unsigned lengths[5] = {8, 16, 8, 32, 16};
  StandingSpans standing;
  for (unsigned i = 0; i < 5; ++i) {
    spans[i].page_count = static_cast<uint8_t>(lengths[i]);
    standing.push(&spans[i], 10 * i);
  }
  EXPECT_TRUE(standing.is_valid());
  EXPECT_EQ(standing.newest(Pages(8)), &spans[2]);
  EXPECT_EQ(standing.newest(Pages(9)), nullptr);
  EXPECT_EQ(standing.pop_older(UINT64_MAX), &spans[3]);
  EXPECT_EQ(standing.newest(Pages(32)), nullptr);
  standing.pop_newest(&spans[4]);
  EXPECT_EQ(standing.newest(Pages(16)), &spans[1]);
  EXPECT_EQ(standing.pop_older(10), &spans[0]) << "the longer one came later";
  EXPECT_TRUE(standing.is_valid());
  EXPECT_EQ(standing.pop_older(UINT64_MAX), &spans[1]);
  EXPECT_EQ(standing.pop_older(UINT64_MAX), &spans[2]);
  EXPECT_EQ(standing.pop_older(UINT64_MAX), nullptr);
  EXPECT_TRUE(standing.is_valid());
}

}  // namespace
}  // namespace loam
