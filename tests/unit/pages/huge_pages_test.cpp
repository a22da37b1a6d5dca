// LOAM_HUGE_PAGES=on: where huge pages are asked for, what a touch backs beyond what was taken is
// counted and goes back, and a block that gives pages back while others stay keeps small ones.
#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "os/charge.h"
#include "pages/page_heap_model.h"

namespace loam {
namespace {

namespace fake = os::fake;
using fake::Call;
using test::PageHeapModel;
using test::Random;

constexpr size_t kSmallPages =
    (size_t{16} << 20) / kPageBytes;  // of a heap's first memory, which never asks

class HugePagesTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    model_.heap().want_huge_pages();
  }

  PageHeapModel& model() { return model_; }
  /// Live runs in all of the first 16 MiB.
  void fill_small_pages() {
    for (size_t pages = 0; pages != kSmallPages; pages += kPagesPerBlock)
      model_.large(kPagesPerBlock, 1, 1);
    ASSERT_EQ(resident(), kSmallPages / kPagesPerBlock) << "a page of each";
    ASSERT_EQ(fake::calls(Call::kAdviseHuge), fake::calls(Call::kCommit))
        << "against them, of each piece";
  }
  [[nodiscard]] static size_t resident() { return fake::resident_bytes() / kPageBytes; }
  [[nodiscard]] size_t dirty() { return model_.heap().stats().dirty.count; }

 private:
  PageHeapModel model_;
};

TEST_F(HugePagesTest, WhatATouchBacksIsCountedAndGoesBack) {
  fill_small_pages();
  const size_t before = resident();
  bool zero = false;
  const uintptr_t run = model().large(10, 1, 1, &zero);
  EXPECT_TRUE(zero) << "nobody has written there, whatever it is backed by";
  EXPECT_EQ(resident() - before, kPagesPerBlock);
  EXPECT_EQ(dirty(), kPagesPerBlock - 10);
  model().check();
  // The next run is cut out of what is backed, and may hold anything.
  EXPECT_EQ(model().large(20, 1, 1, &zero), run + 10 * kPageBytes);
  EXPECT_FALSE(zero);
  model().heap().purge_all();
  EXPECT_EQ(resident() - before, 30u);
  EXPECT_EQ(dirty(), 0u);
  model().check();
}

TEST_F(HugePagesTest, WhatNobodyTakesGoesBackByAndBy) {
  fill_small_pages();
  for (int i = 0; i < 8; ++i) model().large(kPagesPerBlock / 2 + 1, 1, 1);
  EXPECT_GE(dirty(), 8 * (kPagesPerBlock / 2 - 1)) << "no two of them lie in one block";
  for (int i = 0; i < 2000 && dirty() > PurgePolicy::kFloor.count; ++i) {
    fake::advance_ms(10);
    model().heap().tick();
  }
  EXPECT_LE(dirty(), PurgePolicy::kFloor.count);
  model().check();
}

TEST_F(HugePagesTest, ABlockThatGaveBackAPartKeepsSmallPagesUntilItIsFree) {
  if (os::kChargesCommit) GTEST_SKIP() << "where commit is charged: there are no huge pages";
  fill_small_pages();
  const uintptr_t untouched = model().large(100);
  const size_t before = resident();
  model().heap().purge_all();
  EXPECT_EQ(resident(), before);
  fake::touch(untouched, 1);
  EXPECT_EQ(resident(), before + 1) << "a touch backs one page, not what went back beside it";
  model().check();
  model().free(untouched);
  model().heap().purge_all();
  const uintptr_t again = model().large(100, 1, 1);
  EXPECT_EQ(again, untouched);
  EXPECT_EQ(resident(), before + kPagesPerBlock);
  model().check();
}

TEST_F(HugePagesTest, ABlockOfWhichAPartWasHandedOverKeepsSmallPages) {
  fill_small_pages();
  const uintptr_t stays = model().large(100);
  bool zero = false;
  Span* const goes = model().heap().allocate_large(Pages(100), Pages(1), 1, 3, &zero);
  ASSERT_NE(goes, nullptr);
  const size_t before = resident();
  model().heap().hand_over(goes);
  fake::touch(stays, 1);
  EXPECT_EQ(resident(), before + 1);
  model().check();
}

TEST_F(HugePagesTest, WhatIsYoungIsLeftToTheBlock) {
  fill_small_pages();
  for (int i = 0; i < 100; ++i) {
    for (int k = 0; k < 6; ++k)
      model().large(kPagesPerBlock / 3, 1, 1);  // three to a block, and two pages of it are left
    fake::advance_ms(PurgePolicy::kIdleMs / 200);
    model().heap().tick();
  }
  EXPECT_EQ(fake::calls(Call::kPurge), 0u) << "it would split what was just given";
  model().check();
}

TEST_F(HugePagesTest, ASpanIsBackedAllOver) {
  fill_small_pages();
  Span* const span = model().heap().allocate_span(Pages(8), SizeClass(1), SizeClass(1), 4,
                                                  PageHeap::Source::kAny, PageHeap::Use::kBySlots);
  ASSERT_NE(span, nullptr);
  EXPECT_EQ(span->unbacked_pages, 0u) << "a touch of the first page backs the others";
  model().heap().free(span);
  model().check();
}

TEST_F(HugePagesTest, WhereTheSystemRefusesPagesCountOneByOne) {
  fill_small_pages();
  fake::fail(Call::kAdviseHuge, 1, 2);  // against them, and then for them
  const size_t before = resident();
  model().large(10, 1, 1);
  EXPECT_EQ(resident(), before + 1);
  EXPECT_EQ(dirty(), 0u);
  model().check();
}

TEST_F(HugePagesTest, MemoryThatIsTouchedLateIsCountedInTime) {
  if (os::kChargesCommit) GTEST_SKIP() << "where commit is charged: there are no huge pages";
  for (uint64_t walk = 0; walk < 6; ++walk) {
    Random random = test::seeded(walk);
    LOAM_TRACE_SEED(random);
    fake::reset();
    PageHeapModel model;
    model.heap().want_huge_pages();
    for (int i = 0; i < 1500; ++i) {
      const unsigned what = random.between(0, 99);
      if (what < 35) {
        const unsigned pages = random.magnitude(700);
        model.large(pages, size_t{1} << random.below(10),
                    random.chance(50) ? random.below(pages * kPageBytes) : 0);
      } else if (what < 45) {
        model.span(random.between(1, kMaxSpanPages), random.between(1, 72));
      } else if (model.runs().empty()) {
        continue;
      } else if (what < 45 + (i / 300 % 2 == 0 ? 10 : 35)) {
        model.free(model.random_run(random));
      } else if (what < 92) {
        const uintptr_t run = model.random_run(random);
        fake::touch(run + random.below(model.runs().at(run).pages) * kPageBytes, 1);
      } else {
        fake::advance_ms(random.below(2'000));
        model.heap().tick();
        if (what == 99) model.heap().purge_all();
      }
      model.check();
      if (HasFailure()) FAIL() << "walk " << walk << " step " << i;
    }
    model.check_contents();
  }
}

TEST(HugePages, NobodyAsksForThemUnasked) {
  fake::reset();
  PageHeapModel model;
  for (int i = 0; i < 40; ++i) model.large(kPagesPerBlock / 2 + 1, 1, 1);
  model.heap().purge_all();
  EXPECT_EQ(fake::calls(Call::kAdviseHuge), fake::calls(Call::kCommit))
      << "against them, of each piece";
  EXPECT_EQ(fake::resident_bytes(), 40 * kPageBytes);
}

TEST(HugePages, LargerPagesHaveNoneOf2MiB) {
  fake::reset();
  fake::set_granularity(65536);
  PageHeap heap;
  heap.want_huge_pages();
  EXPECT_FALSE(heap.wants_huge_pages());
  fake::reset();
}

}  // namespace
}  // namespace loam
