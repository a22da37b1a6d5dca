// Deferred coalescing: what waits is taken back exactly as it stands, never costs fresh memory, and does not
// wait for ever.
#include <vector>

#include "os/fake.h"
#include "pages/page_heap_model.h"

namespace loam {
namespace {

namespace fake = os::fake;
using test::PageHeapModel;

class ParkedRunsTest : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }

  [[nodiscard]] PageStats stats() { return model.heap().stats(); }

  PageHeapModel model;
};

TEST_F(ParkedRunsTest, TheSameLengthTakesTheLastFreedRunAsItStands) {
  const uintptr_t a = model.large(17, 1, 17 * kPageBytes);
  const uintptr_t b = model.large(17, 1, 17 * kPageBytes);
  model.free(a);
  model.free(b);
  EXPECT_EQ(stats().parked, Pages(34));
  EXPECT_EQ(model.large(17, 1, 17 * kPageBytes), b);
  EXPECT_EQ(model.large(17, 1, 17 * kPageBytes), a);
  EXPECT_EQ(stats().parked, Pages(0));
  model.check();
}

TEST_F(ParkedRunsTest, ABatchOfOneLengthIsServedByTheLastBatch) {
  std::vector<uintptr_t> runs;
  for (int i = 0; i < 5000; ++i) runs.push_back(model.large(17, 1, 17 * kPageBytes));
  const uint64_t fresh = stats().fresh_pages;
  for (const uintptr_t run : runs) model.free(run);
  EXPECT_EQ(stats().parked, Pages(5000 * 17));
  for (int i = 0; i < 5000; ++i) model.large(17, 1, 17 * kPageBytes);
  EXPECT_EQ(stats().fresh_pages, fresh);
  EXPECT_EQ(stats().parked, Pages(0));
  model.check();
}

TEST_F(ParkedRunsTest, AnotherLengthGetsJoinedRunsBeforeFreshMemory) {
  std::vector<uintptr_t> runs;
  for (int i = 0; i < 600; ++i) runs.push_back(model.large(16, 1, 16 * kPageBytes));
  const uint64_t fresh = stats().fresh_pages;
  for (const uintptr_t run : runs) model.free(run);
  // 9,600 pages wait in pieces of 16: half as long, twice as long, and whole blocks come out of them.
  for (int i = 0; i < 100; ++i) model.large(8, 1, 8 * kPageBytes);
  for (int i = 0; i < 100; ++i) model.large(32, 1, 32 * kPageBytes);
  for (int i = 0; i < 9; ++i) model.large(kPagesPerBlock, 1, kBlockBytes);
  EXPECT_EQ(stats().fresh_pages, fresh);
  model.check();
}

TEST_F(ParkedRunsTest, NoMoreIsJoinedThanARequestNeeds) {
  std::vector<uintptr_t> runs;
  for (int i = 0; i < 4000; ++i) runs.push_back(model.large(16, 1, 16 * kPageBytes));
  for (const uintptr_t run : runs) model.free(run);
  model.large(15, 1, 15 * kPageBytes);
  EXPECT_EQ(stats().parked, Pages(3999 * 16)) << "one longer run is enough";
  model.large(17, 1, 17 * kPageBytes);
  EXPECT_GE(stats().parked, Pages(3800 * 16)) << "neighbours were freed one after another";
  model.check();
}

TEST_F(ParkedRunsTest, SpansTakeSpansAndLargeRunsLargeOnes) {
  const uintptr_t large = model.large(4, 1, 4 * kPageBytes);
  const uintptr_t span = model.span(4);
  model.free(large);
  model.free(span);
  EXPECT_EQ(model.span(4), span);
  EXPECT_EQ(model.large(4, 1, 4 * kPageBytes), large);
  model.check();
}

TEST_F(ParkedRunsTest, WhatWaitsForLongJoinsAndIsPurgedByTheTimeOfItsFree) {
  std::vector<uintptr_t> runs;
  for (int i = 0; i < 2000; ++i) runs.push_back(model.large(16, 1, 16 * kPageBytes));
  for (const uintptr_t run : runs) model.free(run);
  for (int ms = 0; ms < 3000; ms += 10) {
    fake::advance_ms(10);
    model.heap().tick();
  }
  EXPECT_EQ(stats().parked, Pages(0));
  fake::advance_ms(PurgePolicy::kHoldMs);
  for (int ms = 0; ms < 2000; ms += 10) {
    fake::advance_ms(10);
    model.heap().tick();
  }
  EXPECT_LE(stats().dirty, PurgePolicy::kFloor);
  model.check();
}

TEST_F(ParkedRunsTest, TrimAndResizeSeeThroughWhatWaits) {
  const uintptr_t a = model.large(16, 1, 16 * kPageBytes);
  const uintptr_t b = model.large(16, 1, 16 * kPageBytes);
  ASSERT_EQ(b, a + Pages(16).bytes());
  model.free(b);
  EXPECT_TRUE(model.resize(a, 30)) << "into a parked neighbour";
  model.free(a);
  model.heap().purge_all();
  EXPECT_EQ(stats().parked, Pages(0));
  EXPECT_EQ(stats().dirty, Pages(0));
  model.check();
}

}  // namespace
}  // namespace loam
