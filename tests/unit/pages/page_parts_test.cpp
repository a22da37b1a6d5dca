// The small parts of the page heap: arithmetic, without memory.
#include <gtest/gtest.h>

#include "pages/huge_surplus.h"
#include "pages/large_account.h"
#include "pages/page_clock.h"
#include "pages/page_hints.h"
#include "pages/purge_policy.h"

namespace loam {
namespace {

TEST(LargeAccount, CountsBlocksAndNoRunsThatAreSetAside) {
  LargeAccount account;
  Span block{}, aside{};
  block.large.pages = 5;
  block.large.requested = 20'000;
  aside.large.pages = 9;
  aside.large.requested = kNobodysBlock;
  account.add(&block);
  account.add(&aside);
  account.resize(&aside, Pages(12), kNobodysBlock);
  account.resize(&block, Pages(7), 28'000);
  PageStats stats{};
  account.show(&stats);
  EXPECT_EQ(stats.large_blocks, 1u);
  EXPECT_EQ(stats.large_pages, Pages(7));
  EXPECT_EQ(stats.large_requested, 28'000u);
  block.large.pages = 7;
  block.large.requested = 28'000;
  account.remove(&block);
  account.remove(&aside);
  account.show(&stats);
  EXPECT_EQ(stats.large_blocks, 0u);
  EXPECT_EQ(stats.large_pages, Pages(0));
  EXPECT_EQ(stats.large_requested, 0u);
  EXPECT_EQ(stats.large_allocations, 1u) << "the count of calls only grows";
}

TEST(PageClock, ATickIsDueEveryFewOperationsAndALookAfterItsTime) {
  PageClock clock;
  for (int round = 0; round < 2; ++round) {
    for (unsigned i = 1; i < kOperationsPerTick; ++i) ASSERT_FALSE(clock.ends_count()) << i;
    ASSERT_TRUE(clock.ends_count());
  }
  clock.read();
  EXPECT_TRUE(clock.is_due(PageClock::kRecords, 1)) << "nobody looked yet";
  clock.note(PageClock::kRecords);
  EXPECT_FALSE(clock.is_due(PageClock::kRecords, 1));
  EXPECT_TRUE(clock.is_due(PageClock::kSurplus, 1)) << "each look has its own time";
}

TEST(PageHints, TicksAreWantedForPagesAndForSpans) {
  PageHints hints;
  EXPECT_FALSE(hints.wants_ticks());
  hints.set_pages_wait(true);
  EXPECT_TRUE(hints.wants_ticks());
  hints.set_pages_wait(false);
  EXPECT_FALSE(hints.wants_ticks());
  hints.set_spans_wait(true);
  EXPECT_TRUE(hints.wants_ticks());
}

TEST(PageHints, TheShardsInUseAreTheFirstOnes) {
  PageHints hints;
  hints.use_shard(3);
  hints.use_shard(1);
  EXPECT_EQ(hints.shards_in_use(), 4u);
}

TEST(HugeSurplus, GrowsWhileItIsASmallPartOfTheHeap) {
  HugeSurplus surplus;
  const Pages heap(kSurplusShare * 2 * kPagesPerSlab);
  EXPECT_TRUE(surplus.may_grow(RunKind::kSpan, heap));
  EXPECT_FALSE(surplus.may_grow(RunKind::kLarge, heap)) << "only slabs for spans ask";
  surplus.add(Pages(kPagesPerSlab));
  EXPECT_TRUE(surplus.may_grow(RunKind::kSpan, heap)) << "with this one it is just the part";
  surplus.add(Pages(1));
  EXPECT_FALSE(surplus.may_grow(RunKind::kSpan, heap));
  surplus.use(HugeSurplus::When::kAlways);
  EXPECT_TRUE(surplus.may_grow(RunKind::kLarge, heap));
  surplus.use(HugeSurplus::When::kNever);
  EXPECT_FALSE(surplus.may_grow(RunKind::kSpan, heap));
}

TEST(HugeSurplus, AsMuchIsNeededSoonAsWasTakenLately) {
  HugeSurplus surplus;
  EXPECT_EQ(surplus.needed_soon(700), Pages(700));
  EXPECT_EQ(surplus.needed_soon(750), Pages(50));
  EXPECT_EQ(surplus.needed_soon(750), Pages(0));
}

TEST(PurgePolicy, ThePeakStays) {
  PurgePolicy policy;
  policy.observe(Pages(300));
  policy.observe(Pages(200));
  EXPECT_EQ(policy.peak(), Pages(300));
}

}  // namespace
}  // namespace loam
