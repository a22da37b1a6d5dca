// Which mappings are kept, which requests get them, and when they are unmapped.
#include "pages/idle_mappings.h"

#include <gtest/gtest.h>

namespace loam {
namespace {

constexpr uintptr_t kFirst = uintptr_t{1} << 40;
constexpr size_t kLong = 40 * kPagesPerSlab;
constexpr uint64_t kFirstMs = 100'000;

class IdleMappingsTest : public testing::Test {
 protected:
  using Mapping = IdleMappings::Mapping;

  /// A mapping that was unmapped would have served a request.
  void SetUp() override {
    EXPECT_FALSE(idle.keep(kFirst, Pages(kLong), kFirstMs));
    EXPECT_EQ(take(kLong).address, 0u);
  }
  Mapping take(size_t pages, size_t alignment = kPageBytes, uint64_t now_ms = kFirstMs) {
    return idle.take(Pages(pages), alignment, now_ms);
  }
  bool keep(uintptr_t address, size_t pages, uint64_t now_ms = kFirstMs) {
    return idle.keep(address, Pages(pages), now_ms);
  }
  /// The n-th address. No two of them are neighbours.
  static uintptr_t place(size_t n) { return kFirst + n * Pages(10 * kLong).bytes(); }

  IdleMappings idle;
};

TEST(IdleMappings, ABlockThatIsFreedOnceIsNotKept) {
  IdleMappings idle;
  EXPECT_FALSE(idle.keep(kFirst, Pages(kLong), kFirstMs));
  EXPECT_EQ(idle.take(Pages(kLong + 1), kPageBytes, kFirstMs).address, 0u)
      << "it would not have served this one";
  EXPECT_FALSE(idle.keep(kFirst, Pages(kLong + 1), kFirstMs + 10 * IdleMappings::kKeptMs));
  EXPECT_EQ(idle.take(Pages(kLong), kPageBytes, kFirstMs + 12 * IdleMappings::kKeptMs).address, 0u)
      << "nor this, so much later";
  EXPECT_FALSE(idle.keep(kFirst, Pages(kLong), kFirstMs + 12 * IdleMappings::kKeptMs));
  EXPECT_TRUE(idle.empty());
}

TEST(IdleMappings, SeveralThatWentTogetherCountTogether) {
  IdleMappings idle;
  EXPECT_FALSE(idle.keep(kFirst, Pages(kLong), kFirstMs));
  EXPECT_FALSE(idle.keep(2 * kFirst, Pages(kLong), kFirstMs + IdleMappings::kKeptMs));
  EXPECT_EQ(idle.take(Pages(2 * kLong), kPageBytes, kFirstMs + 2 * IdleMappings::kKeptMs).address,
            0u);
  EXPECT_TRUE(idle.keep(kFirst, Pages(kLong), kFirstMs));
}

TEST_F(IdleMappingsTest, WhoRepeatsGetsItBack) {
  ASSERT_TRUE(keep(place(1), kLong));
  EXPECT_EQ(idle.pages(), Pages(kLong));
  const Mapping mapping = take(kLong);
  EXPECT_EQ(mapping.address, place(1));
  EXPECT_EQ(mapping.pages, Pages(kLong));
  EXPECT_TRUE(idle.empty());
  EXPECT_EQ(idle.pages(), Pages(0));
}

TEST_F(IdleMappingsTest, TheShortestThatHoldsItServesAndItsRestStays) {
  ASSERT_TRUE(keep(place(1), 3 * kLong));
  ASSERT_TRUE(keep(place(2), 2 * kLong));
  ASSERT_TRUE(keep(place(3), kLong - 1));
  EXPECT_EQ(take(kLong).address, place(2));
  EXPECT_EQ(idle.pages(), Pages(5 * kLong - 1));
  EXPECT_EQ(take(kLong).address, place(2) + Pages(kLong).bytes()) << "what was left of it";
  EXPECT_EQ(take(kLong).address, place(1));
}

TEST_F(IdleMappingsTest, WhereNoneIsLongEnoughTheLongestIsMadeLonger) {
  ASSERT_TRUE(keep(place(1), kLong));
  ASSERT_TRUE(keep(place(2), kLong + 1));
  EXPECT_EQ(take(2 * kLong, 2 * kPageBytes).address, 0u)
      << "who grows may move, and then is not aligned";
  const Mapping mapping = take(2 * kLong);
  EXPECT_EQ(mapping.address, place(2));
  EXPECT_EQ(mapping.pages, Pages(kLong + 1));
}

TEST_F(IdleMappingsTest, AnAlignedBlockGetsAnAlignedMapping) {
  ASSERT_TRUE(keep(place(1) + kPageBytes, kLong));
  ASSERT_TRUE(keep(place(2), 2 * kLong));
  EXPECT_EQ(take(kLong, kSlabBytes).address, place(2));
  EXPECT_EQ(take(kLong - 1, 2 * kPageBytes).address, place(2) + Pages(kLong).bytes());
}

TEST_F(IdleMappingsTest, WhoGrowsGetsTheLongestAndThenWhatIsBehind) {
  ASSERT_TRUE(keep(place(1), kLong));
  ASSERT_TRUE(keep(place(2), 2 * kLong));
  const Mapping mapping = idle.take(Pages(kLong / 2), kPageBytes, kFirstMs, true);
  EXPECT_EQ(mapping.address, place(2));
  const uintptr_t end = place(2) + Pages(kLong / 2).bytes();
  EXPECT_EQ(idle.take_at(end + kPageBytes, Pages(1), kFirstMs), Pages(0));
  EXPECT_EQ(idle.take_at(end, Pages(kLong), kFirstMs), Pages(kLong));
  EXPECT_EQ(idle.take_at(end + Pages(kLong).bytes(), Pages(kLong), kFirstMs), Pages(kLong / 2))
      << "all that there is";
  EXPECT_EQ(idle.pages(), Pages(kLong));
}

TEST_F(IdleMappingsTest, WhoGrowsTakesSeveralThatFollowEachOther) {
  ASSERT_TRUE(keep(kFirst + Pages(kLong).bytes(), kLong));
  ASSERT_TRUE(keep(kFirst, kLong));
  EXPECT_EQ(idle.take_at(kFirst, Pages(3 * kLong), kFirstMs), Pages(2 * kLong));
  EXPECT_TRUE(idle.empty());
}

TEST_F(IdleMappingsTest, NeighboursJoinForWhatNoneOfThemHolds) {
  ASSERT_TRUE(keep(kFirst, kLong));
  ASSERT_TRUE(keep(kFirst + Pages(2 * kLong).bytes(), kLong));
  ASSERT_TRUE(keep(kFirst + Pages(kLong).bytes(), kLong));
  ASSERT_TRUE(keep(place(5), kLong));
  EXPECT_EQ(take(kLong).pages, Pages(kLong));
  const Mapping mapping = take(2 * kLong);
  EXPECT_EQ(mapping.pages, Pages(2 * kLong));
  EXPECT_EQ(idle.pages(), Pages(kLong));
}

TEST_F(IdleMappingsTest, AnyOrderOfNeighboursJoins) {
  const size_t orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}, {3, 0, 2, 1}};
  for (const auto& order : orders) {
    for (const size_t n : order) ASSERT_TRUE(keep(kFirst + Pages(n * kLong).bytes(), kLong));
    const Mapping mapping = take(4 * kLong);
    EXPECT_EQ(mapping.address, kFirst);
    EXPECT_EQ(mapping.pages, Pages(4 * kLong));
    ASSERT_TRUE(idle.empty());
  }
}

TEST_F(IdleMappingsTest, OnlySoManyAreKept) {
  for (size_t i = 0; i < IdleMappings::kMost; ++i) ASSERT_TRUE(keep(place(i), kLong));
  EXPECT_FALSE(keep(place(IdleMappings::kMost), kLong));
  EXPECT_EQ(idle.pages(), Pages(IdleMappings::kMost * kLong));
  static_cast<void>(take(kLong));
  EXPECT_TRUE(keep(place(3) + Pages(kLong).bytes(), kLong));
  EXPECT_TRUE(keep(place(IdleMappings::kMost), kLong)) << "two that lie side by side have joined";
}

TEST_F(IdleMappingsTest, TheOldestGoesFirstFromItsEnd) {
  ASSERT_TRUE(keep(place(1), kLong, kFirstMs + 2));
  ASSERT_TRUE(keep(place(2), kLong, kFirstMs + 1));
  const Mapping part = idle.shed(Pages(100));
  EXPECT_EQ(part.address, place(2) + Pages(kLong - 100).bytes());
  EXPECT_EQ(part.pages, Pages(100));
  const Mapping rest = idle.shed(Pages(kLong));
  EXPECT_EQ(rest.address, place(2));
  EXPECT_EQ(rest.pages, Pages(kLong - 100));
  EXPECT_EQ(idle.shed(Pages(kLong)).address, place(1));
  EXPECT_TRUE(idle.empty());
}

TEST_F(IdleMappingsTest, WhatNobodyTookIsDueAndNothingMoreIsKept) {
  ASSERT_TRUE(keep(place(1), kLong));
  EXPECT_EQ(idle.due(Pages(0), kFirstMs + IdleMappings::kKeptMs), Pages(0));
  const uint64_t late = kFirstMs + IdleMappings::kKeptMs + 1;
  EXPECT_EQ(idle.due(Pages(0), late), Pages(kLong));
  static_cast<void>(idle.shed(Pages(kLong)));
  EXPECT_FALSE(keep(place(1), kLong, late));
}

TEST_F(IdleMappingsTest, WhileOthersAreTakenItGoesAloneAndKeepingGoesOn) {
  ASSERT_TRUE(keep(place(1), 2 * kLong));
  const uint64_t late = kFirstMs + IdleMappings::kKeptMs + 1;
  ASSERT_TRUE(keep(place(2), kLong, late));
  EXPECT_EQ(take(kLong, kPageBytes, late).address, place(2));
  EXPECT_EQ(idle.due(Pages(0), late), Pages(2 * kLong));
  EXPECT_TRUE(keep(place(2), kLong, late));
}

TEST_F(IdleMappingsTest, NoMoreIsKeptThanIsUsedOrAFixedAmount) {
  const size_t most = IdleMappings::kMostIdle.count;
  ASSERT_TRUE(keep(kFirst, 3 * most));
  EXPECT_EQ(idle.due(Pages(0), kFirstMs), Pages(2 * most));
  EXPECT_EQ(idle.due(Pages(2 * most), kFirstMs), Pages(most));
  EXPECT_EQ(idle.due(Pages(3 * most), kFirstMs), Pages(0));
}

}  // namespace
}  // namespace loam
