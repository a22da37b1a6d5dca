// The place of the next short span: slab and parked runs alone, without a page heap.
#include "pages/filling_slab.h"

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "os/os.h"

namespace loam {
namespace {

namespace fake = os::fake;

constexpr uint32_t kFirst = 3 * kPagesPerSlab;

class FillingSlabTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    region_ = add_region(reinterpret_cast<uintptr_t>(os::reserve(kRegionBytes, kRegionBytes)));
    ASSERT_NE(region_, nullptr);
    slab().state = SlabState::kActive;
    slab().kind = RunKind::kSpan;
  }

  [[nodiscard]] Slab& slab() { return region_->slabs[kFirst / kPagesPerSlab]; }

  void make_free(unsigned first, unsigned count, bool backed) {
    slab().free.set_range(first, count);
    if (backed) slab().backed.set_range(first, count);
  }

  Span* park(unsigned first, unsigned count) {
    Span* const span = take_span_record(region_);
    span->first_page = kFirst + first;
    span->large.pages = count;
    parked_.push(span, ParkedRuns::kSpansRuns, 0);
    return span;
  }

  /// Takes the next run of that length, and returns its place in the slab; -1: none.
  int take(unsigned count) {
    if (!filling_.find(count, &run_)) return -1;
    const uint32_t page = filling_.next().index;
    if (run_ != nullptr) {
      parked_.cut(run_, count, take_span_record(region_));
    } else {
      slab().free.clear_range(page - kFirst, count);
    }
    filling_.pass(count);
    return static_cast<int>(page - kFirst);
  }

  Region* region_ = nullptr;
  ParkedRuns parked_;
  FillingSlab filling_;
  Span* run_ = nullptr;
};

TEST_F(FillingSlabTest, SpansFollowEachOtherInTheOrderOfPages) {
  Span* const run = park(10, 8);
  make_free(20, 3, true);
  filling_.begin(region_, PageId(kFirst + 15));
  EXPECT_EQ(take(3), 10) << "from the slab's beginning on";
  EXPECT_EQ(run_, run);
  EXPECT_EQ(take(3), 13);
  EXPECT_EQ(take(3), 20) << "two pages of the parked run are left, too few";
  EXPECT_EQ(run_, nullptr);
  EXPECT_EQ(run->large.pages, 2u);
}

TEST_F(FillingSlabTest, APassedPageServesNoMore) {
  make_free(8, 2, true);
  filling_.begin(region_, PageId(kFirst));
  EXPECT_EQ(take(2), 8);
  make_free(4, 4, true);
  make_free(16, 2, true);
  EXPECT_EQ(take(2), 16);
}

TEST_F(FillingSlabTest, PagesWithoutMemoryDoNotServe) {
  make_free(0, 32, false);
  make_free(32, 4, true);
  filling_.begin(region_, PageId(kFirst));
  EXPECT_EQ(take(4), 32);
}

TEST_F(FillingSlabTest, ARequestPassesABoundedNumberOfPages) {
  make_free(200, 4, true);
  filling_.begin(region_, PageId(kFirst));
  EXPECT_EQ(take(4), -1);
  const uint32_t passed = filling_.next().index - kFirst;
  EXPECT_GT(passed, 0u);
  EXPECT_LT(passed, 200u);
  unsigned requests = 1;
  while (take(4) == -1) ASSERT_LT(++requests, 10u);
  EXPECT_EQ(requests, 200 / passed) << "each continues";
}

TEST_F(FillingSlabTest, AtTheEndThereIsNoBlockUntilOneBegins) {
  make_free(kPagesPerSlab - 2, 2, true);
  filling_.begin(region_, PageId(kFirst));
  filling_.pass(kPagesPerSlab - 8);
  filling_.begin(region_, PageId(0));
  EXPECT_EQ(take(2), int{kPagesPerSlab} - 2) << "the slab that is being filled stays";
  EXPECT_TRUE(filling_.empty());

  filling_.begin(region_, PageId(kFirst));
  filling_.pass(kPagesPerSlab - 8);
  EXPECT_EQ(take(2), -1);
  EXPECT_TRUE(filling_.empty()) << "the rest holds nothing";
}

TEST_F(FillingSlabTest, ABlockThatHasBecomeWholeIsDropped) {
  make_free(0, kPagesPerSlab, true);
  filling_.begin(region_, PageId(kFirst));
  slab().state = SlabState::kWhole;
  EXPECT_EQ(take(2), -1);
  EXPECT_TRUE(filling_.empty());
}

}  // namespace
}  // namespace loam
