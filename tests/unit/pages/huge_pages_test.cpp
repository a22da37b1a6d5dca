// Huge pages: where the heap requests them. Pages that a touch backs beyond the taken ones are
// counted, bounded and purged. A slab that is partly purged keeps small pages.
#include <set>
#include <vector>

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
    (size_t{16} << 20) / kPageBytes;  // of a heap's first memory, which never requests huge pages

class HugePagesTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    model_.heap().huge_pages().use(HugeSurplus::When::kAlways);
  }

  PageHeapModel& model() { return model_; }
  /// Puts live runs into all of the first 16 MiB.
  void fill_small_pages() {
    for (size_t pages = 0; pages != kSmallPages; pages += kPagesPerSlab)
      model_.large(kPagesPerSlab, 1, 1);
    ASSERT_EQ(resident(), kSmallPages / kPagesPerSlab) << "a page of each";
    ASSERT_EQ(fake::calls(Call::kAdviseHuge), fake::calls(Call::kCommit))
        << "against them, of each piece";
  }
  [[nodiscard]] static size_t resident() { return fake::resident_bytes() / kPageBytes; }
  [[nodiscard]] size_t dirty() { return model_.heap().stats().dirty.count; }
  /// The most pages that may be surplus.
  [[nodiscard]] size_t limit() {
    const PageStats stats = model_.heap().stats();
    return (stats.used + stats.dirty).count / 8;
  }

 private:
  PageHeapModel model_;
};

TEST_F(HugePagesTest, WhatATouchBacksIsCountedAndGoesBack) {
  fill_small_pages();
  const size_t before = resident();
  bool zero = false;
  const uintptr_t run = model().large(10, 1, 1, &zero);
  EXPECT_TRUE(zero) << "nobody has written there, whatever it is backed by";
  EXPECT_EQ(resident() - before, kPagesPerSlab);
  EXPECT_EQ(dirty(), kPagesPerSlab - 10);
  model().check();
  // The next run is cut from the surplus pages.
  EXPECT_EQ(model().large(20, 1, 1, &zero), run + 10 * kPageBytes);
  EXPECT_TRUE(zero);
  EXPECT_EQ(dirty(), kPagesPerSlab - 30);
  model().heap().purge_all();
  EXPECT_EQ(resident() - before, 30u);
  EXPECT_EQ(dirty(), 0u);
  model().check();
}

TEST_F(HugePagesTest, WhatIsFreeAndBackedServesBeforeWhatIsSurplus) {
  fill_small_pages();
  model().large(100, 1, 1);
  const uintptr_t second = model().large(50, 1, 1);
  model().large(20, 1, 1);
  model().free(second);
  const size_t before = dirty();
  EXPECT_EQ(model().large(50, 1, 1), second);
  EXPECT_EQ(dirty(), before - 50);
  model().check();
}

TEST_F(HugePagesTest, ABoundedPartOfTheHeapIsSurplus) {
  fill_small_pages();
  for (int i = 0; i < 64; ++i) {
    model().large(kPagesPerSlab / 2 + 1, 1, 1);  // no two of them lie in one slab
    EXPECT_LE(dirty(), limit());
  }
  EXPECT_GT(dirty(), kPagesPerSlab / 2) << "more than one slab has some";
  model().check();
}

TEST_F(HugePagesTest, WhatIsSurplusGoesWhenTheHeapDoesNotGrow) {
  fill_small_pages();
  for (int i = 0; i < 64; ++i) model().large(kPagesPerSlab / 2 + 1, 1, 1);
  // Another free page makes the heap look at the clock.
  model().free(model().large(2 * PurgePolicy::kFloor.count, 1, 1));
  const size_t before = dirty();
  for (int i = 0; i < 2 * int(PurgePolicy::kSoonMs) / 10; ++i) {
    fake::advance_ms(10);
    model().heap().tick();
  }
  EXPECT_LE(dirty(), before - kPagesPerSlab / 2);
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
  EXPECT_EQ(resident(), before + kPagesPerSlab);
  model().check();
}

TEST_F(HugePagesTest, ABlockOfWhichAPartWasHandedOverKeepsSmallPages) {
  fill_small_pages();
  const uintptr_t stays = model().large(100);
  Span* const goes = model().heap().allocate_large(Pages(100), Pages(1), 1, 3).span;
  ASSERT_NE(goes, nullptr);
  const size_t before = resident();
  model().heap().hand_over(goes, true);
  fake::touch(stays, 1);
  EXPECT_EQ(resident(), before + 1);
  model().check();
}

// How many of 32 huge pages are split for the purge's budget. Each of them has that many free
// pages, and one more page is freed and taken all the time.
size_t split_in_use(unsigned free) {
  fake::reset();
  PageHeapModel model;
  model.heap().huge_pages().use(HugeSurplus::When::kAlways);
  for (size_t pages = 0; pages != kSmallPages; pages += kPagesPerSlab)
    model.large(kPagesPerSlab, 1, 1);
  std::vector<uintptr_t> churned, freed;
  for (int slab = 0; slab < 32; ++slab) {
    churned.push_back(model.large(2, 1, 1));
    for (unsigned i = 2; i < kPagesPerSlab; i += 2) {
      model.large(1, 1, 1);
      const uintptr_t run = model.large(1, 1, 1);
      if (i <= 2 * free) freed.push_back(run);
    }
  }
  fake::advance_ms(2 * PurgePolicy::kHoldMs);
  for (const uintptr_t run : freed) model.free(run);
  fake::clear_log();
  for (unsigned ms = 0; ms < 3000; ms += 10) {
    for (const uintptr_t run : churned) {
      model.resize(run, 1);  // a free into the slab
      model.resize(run, 2);
    }
    fake::advance_ms(10);
    model.heap().tick();
  }
  model.check();
  std::set<uintptr_t> split;
  for (const fake::Record& call : fake::log()) {
    if (call.call == Call::kAdviseHuge) split.insert(call.address);
  }
  return split.size();
}

TEST_F(HugePagesTest, AHugePageInUseIsSplitForASixteenthOfItAndForNoLess) {
  constexpr unsigned kSixteenth = kPagesPerSlab / 16;
  EXPECT_EQ(split_in_use(kSixteenth - 1), 0u);
  EXPECT_GE(split_in_use(kSixteenth), 16u);
}

// Fresh pages beyond the bound are paid for by slabs that are worth splitting. A slab with a few
// dirty pages is not split, even if its last free was before that of the slab at the front of the
// list of ages: a free that comes late is sorted behind at most 16 slabs.
TEST_F(HugePagesTest, TheBoundOnIdlePagesSplitsNoHugePageForAFewPages) {
  constexpr size_t kAtOnce = 4 * kPagesPerSlab;  // pays for more than one slab
  constexpr unsigned kFew = 4, kLong = 16, kWorthy = 17,
                     kHoles = kPagesPerSlab - kPagesPerSlab / kLong;
  model().heap().keep_falls();
  fill_small_pages();
  std::vector<uintptr_t> few, shrunk;
  for (int slab = 0; slab < 3; ++slab) {
    few.push_back(model().large(kFew, 1, 1));
    ASSERT_EQ(few.back() % kSlabBytes, 0u);
    model().large(kPagesPerSlab - kFew, 1, 1);
  }
  for (unsigned i = 0; i < kWorthy * kPagesPerSlab / kLong; ++i)
    shrunk.push_back(model().large(kLong, 1, 1));
  fake::advance_ms(10);
  model().heap().tick();
  for (const uintptr_t run : few) model().free(run);  // parked
  fake::advance_ms(1);
  model().heap().tick();
  for (const uintptr_t run : shrunk) ASSERT_TRUE(model().resize(run, 1));
  fake::clear_log();
  const uint64_t before = model().heap().stats().purged_pages;
  const auto purged = [&] { return model().heap().stats().purged_pages - before; };
  for (unsigned i = 0; purged() <= kHoles; ++i) {
    ASSERT_LT(i, 2 * kWorthy) << "the bound was never met";
    model().large(kAtOnce, 1, 1);
  }
  model().check();
  std::set<uintptr_t> split;
  for (const fake::Record& call : fake::log()) {
    if (call.call == Call::kAdviseHuge) split.insert(call.address);
  }
  // The first one is at the front, and the second one behind the few.
  const uintptr_t worthy = shrunk.front() / kSlabBytes * kSlabBytes;
  EXPECT_TRUE(split.contains(worthy) && split.contains(worthy + kSlabBytes));
  for (const uintptr_t slab : few) EXPECT_FALSE(split.contains(slab));
}

TEST_F(HugePagesTest, WhatTheSystemDoesNotTakeBackStaysCounted) {
  fill_small_pages();
  model().large(100, 1, 1);
  Span* const goes = model().heap().allocate_large(Pages(100), Pages(1), 1, 3).span;
  ASSERT_NE(goes, nullptr);
  fake::fail(Call::kPurge, 1, 1);
  model().heap().hand_over(goes, true);
  model().check();
  EXPECT_EQ(dirty(), kPagesPerSlab - 200) << "what was surplus";
  model().heap().purge_all();
  EXPECT_EQ(dirty(), 0u);
  model().check();
}

TEST_F(HugePagesTest, ABlockThatIsReleasedIsInNoListWhateverTheSystemRefuses) {
  fill_small_pages();
  const uintptr_t run = model().large(100, 1, 1);
  ASSERT_GT(dirty(), 0u) << "surplus pages";
  model().free_all();
  fake::fail(Call::kPurge);
  EXPECT_TRUE(model().heap().release_idle_extents());
  fake::clear_failures();
  EXPECT_FALSE(fake::is_reserved(run, kPageBytes));
  EXPECT_EQ(dirty(), 0u);
  model().check();
  EXPECT_NE(model().large(100, 1, 1), 0u);
  model().check();
}

TEST_F(HugePagesTest, ASpanIsBackedAllOver) {
  fill_small_pages();
  Span* const span = model()
                         .heap()
                         .allocate_spans(1, {Pages(8), SizeClass(1), SizeClass(1), 4},
                                         PageHeap::Source::kAny, PageHeap::Use::kBySlots)
                         .span;
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
    model.heap().huge_pages().use(HugeSurplus::When::kAlways);
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

TEST(HugePages, AHeapOf64MiBAsksForThem) {
  fake::reset();
  PageHeapModel model;
  for (int i = 0; i < 32; ++i) model.large(kPagesPerSlab, 1, 1);
  EXPECT_EQ(fake::calls(Call::kAdviseHuge), fake::calls(Call::kCommit))
      << "against them, of each piece";
  const size_t before = fake::resident_bytes();
  model.span(10, 1, 1);
  EXPECT_EQ(fake::resident_bytes() - before, kSlabBytes);
  model.check();
}

TEST(HugePages, ALargeBlockDoesNotAskForThem) {
  fake::reset();
  PageHeapModel model;
  for (int i = 0; i < 80; ++i) model.large(i % 2 == 0 ? 2 * kPagesPerSlab : 300, 1, 1);
  EXPECT_EQ(fake::resident_bytes(), 80 * kPageBytes) << "little of it may ever be written";
  model.check();
}

TEST(HugePages, AProgramMayForbidThem) {
  fake::reset();
  PageHeapModel model;
  model.heap().huge_pages().use(HugeSurplus::When::kNever);
  for (int i = 0; i < 80; ++i) model.large(kPagesPerSlab / 2 + 1, 1, 1);
  model.heap().purge_all();
  EXPECT_EQ(fake::calls(Call::kAdviseHuge), fake::calls(Call::kCommit))
      << "against them, of each piece";
  EXPECT_EQ(fake::resident_bytes(), 80 * kPageBytes);
}

TEST(HugePages, LargerPagesHaveNoneOf2MiB) {
  fake::reset();
  fake::set_granularity(65536);
  PageHeap heap;
  heap.huge_pages().use(HugeSurplus::When::kAlways);
  EXPECT_FALSE(heap.huge_pages().is_always());
  fake::reset();
}

}  // namespace
}  // namespace loam
