// The page heap against its reference model: random walks, and the properties one by one.
#include "pages/page_heap.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "fake_system/fake.h"
#include "os/charge.h"
#include "pages/page_heap_model.h"

namespace loam {
namespace {

namespace fake = os::fake;
using test::PageHeapModel;
using test::Random;

class PageHeapTest : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    fake::reset();
    fake::set_granularity(GetParam());
  }

  size_t grain() const { return GetParam() / kPageBytes; }

  static void step(PageHeapModel& model, Random& random, unsigned grow_percent) {
    const unsigned what = random.between(0, 99);
    if (what < 60) {
      if (model.runs().empty() || random.chance(grow_percent)) {
        allocate(model, random);
      } else {
        model.free(model.random_run(random));
      }
    } else if (what < 75 && !model.runs().empty()) {
      const uintptr_t address = model.random_run(random);
      if (model.runs().at(address).large) model.resize(address, random.magnitude(1500));
    } else if (what < 98) {
      fake::advance_ms(random.below(200));
      model.heap().tick();
    } else if (what == 98) {
      model.heap().purge_all();
      model.check_contents();
    } else {
      fake::advance_ms(random.below(10'000));
    }
  }

  static void allocate(PageHeapModel& model, Random& random) {
    if (random.chance(60)) {
      const unsigned pages = random.between(1, kMaxSpanPages);
      ASSERT_NE(model.span(pages, random.between(1, 72), random.below(pages * kPageBytes + 1)), 0u);
      return;
    }
    const unsigned most = random.chance(10) ? kMaxRun.count : 700;
    const unsigned pages = random.magnitude(most);
    const size_t alignment = random.chance(70) ? 1 : size_t{1} << random.below(18);
    const size_t written =
        random.chance(30) ? pages * kPageBytes : random.below(pages * kPageBytes);
    ASSERT_NE(model.large(pages, alignment, written), 0u) << pages << " at " << alignment;
  }
};

TEST_P(PageHeapTest, RandomWalksAgreeWithTheModel) {
  for (uint64_t walk = 0; walk < 4; ++walk) {
    Random random = test::seeded(walk);
    LOAM_TRACE_SEED(random);
    PageHeapModel model;
    fake::reset();
    fake::set_granularity(GetParam());
    for (int i = 0; i < 1500; ++i) {
      // Grows and shrinks in turns, so that full and nearly empty heaps both occur.
      step(model, random, i / 300 % 2 == 0 ? 65 : 35);
      if (HasFailure()) FAIL() << "walk " << walk << " step " << i;
      model.check();
      if (HasFailure()) FAIL() << "walk " << walk << " step " << i;
    }
    model.free_all();
    model.check();
    ASSERT_FALSE(HasFailure()) << "walk " << walk;
  }
}

TEST_P(PageHeapTest, AfterTheLastFreeEveryBlockIsWholeAgain) {
  Random random = test::seeded(9);
  LOAM_TRACE_SEED(random);
  PageHeapModel model;
  for (int i = 0; i < 500; ++i) {
    model.large(random.magnitude(300));
    model.span(random.between(1, 32));
  }
  while (!model.runs().empty()) model.free(model.random_run(random));
  model.check();
  const size_t committed = model.heap().stats().committed_bytes;
  // Neighbours were joined at once: the same space now holds runs of whole slabs.
  for (size_t i = 0; i < committed / kSlabBytes; ++i) {
    ASSERT_NE(model.large(kPagesPerSlab, kPagesPerSlab), 0u);
  }
  EXPECT_EQ(model.heap().stats().committed_bytes, committed);
  model.check();
}

TEST_P(PageHeapTest, RunsOfManyBlocksShareTheTailOfTheLastOne) {
  PageHeapModel model;
  const uintptr_t big = model.large(2 * kPagesPerSlab + 100);
  const uintptr_t small = model.large(50);
  EXPECT_EQ(small / kSlabBytes, big / kSlabBytes + 2) << "the tail of the third slab";
  model.check();
  model.free(big);
  model.check();
  model.free(small);
  model.check();
  EXPECT_NE(model.large(3 * kPagesPerSlab), 0u);
  EXPECT_EQ(model.heap().stats().committed_bytes, 3 * kSlabBytes);
}

TEST_P(PageHeapTest, RunsOfManyBlocksEndInTheFreeBeginningOfAnother) {
  PageHeapModel model;
  model.heap().keep_falls();
  const uintptr_t a = model.large(2 * kPagesPerSlab), b = model.large(kPagesPerSlab);
  const uintptr_t wall = model.large(kPagesPerSlab);
  ASSERT_EQ(b, a + 2 * kSlabBytes);
  ASSERT_EQ(wall, b + kSlabBytes);
  model.free(b);
  // The slab behind `a`: its second half is used, its first half free.
  const uintptr_t half = model.large(kPagesPerSlab / 2), other = model.large(kPagesPerSlab / 2);
  ASSERT_EQ(half, b);
  model.free(half);
  model.free(a);
  const uint64_t fresh = model.heap().stats().fresh_pages;
  EXPECT_EQ(model.large(2 * kPagesPerSlab + kPagesPerSlab / 2), a);
  EXPECT_EQ(model.heap().stats().fresh_pages, fresh);
  model.check();
  // Shrunk to less than a slab, the run lies in one slab.
  EXPECT_TRUE(model.resize(a, kPagesPerSlab - 1));
  model.free(a);
  model.check();
  model.free(other);
  model.free_all();
  model.check();
}

TEST_P(PageHeapTest, ALongRunLiesWhereTheFewestPagesMustBeBackedAnew) {
  PageHeapModel model;
  model.heap().keep_falls();
  const size_t pages = 3 * kPagesPerSlab;
  // The runs are written to. No page is purged for a run whose pages are already backed.
  const uintptr_t low = model.large(pages, 1, pages * kPageBytes), wall1 = model.large(64);
  const uintptr_t high = model.large(pages, 1, pages * kPageBytes), wall2 = model.large(64);
  ASSERT_LT(low, high);
  model.free(low);
  ASSERT_GE(model.heap().purge_all().count, pages);
  model.free(high);
  const uint64_t fresh = model.heap().stats().fresh_pages;
  bool zero = true;
  EXPECT_EQ(model.large(pages, 1, 0, &zero), high);
  EXPECT_FALSE(zero);
  EXPECT_EQ(model.heap().stats().fresh_pages, fresh);
  EXPECT_EQ(model.large(pages, 1, 0, &zero), low);
  EXPECT_TRUE(zero);
  EXPECT_EQ(model.heap().stats().fresh_pages, fresh + pages);
  model.free(wall1);
  model.free(wall2);
  model.check();
}

TEST_P(PageHeapTest, ShortRunsBeginInTheFirstOfManyFreeBlocksAndLeaveTheOthersForLongOnes) {
  for (const bool ascending : {true, false}) {
    PageHeapModel model;
    fake::reset();
    fake::set_granularity(GetParam());
    model.heap().keep_falls();
    constexpr unsigned kSlabs = 9;
    std::vector<uintptr_t> slabs;
    for (unsigned i = 0; i < kSlabs; ++i)
      slabs.push_back(model.large(kPagesPerSlab, 1, kSlabBytes));
    ASSERT_EQ(slabs.back(), slabs.front() + (kSlabs - 1) * kSlabBytes);
    for (unsigned i = 0; i < kSlabs; ++i) model.free(slabs[ascending ? i : kSlabs - 1 - i]);
    // This request makes parked runs join the bitmaps.
    model.free(model.large(kPagesPerSlab + 1));
    const uint64_t fresh = model.heap().stats().fresh_pages;
    const size_t pages = kPagesPerSlab / 2 + 1;
    EXPECT_EQ(model.large(pages) / kSlabBytes, slabs[0] / kSlabBytes);
    EXPECT_EQ(model.large(pages) / kSlabBytes, slabs[1] / kSlabBytes);
    EXPECT_NE(model.large((kSlabs - 2) * kPagesPerSlab), 0u);
    EXPECT_EQ(model.heap().stats().fresh_pages, fresh);
    model.check();
    model.free_all();
  }
}

// The free pages from the whole slab `first` on, and the number of the slab behind the stretch.
std::pair<size_t, unsigned> stretch_at(const Region* region, unsigned first) {
  unsigned end = first;
  while (end < kSlabsPerRegion && region->whole.test(end)) ++end;
  size_t free = size_t{end - first} * kPagesPerSlab;
  if (free != 0 && end < kSlabsPerRegion) free += region->slabs[end].free.find_clear(0);
  return {free, end};
}

// Tries every place of every stretch. Returns the fewest pages that a run must take fresh, and the
// length of the shortest such stretch.
std::pair<size_t, size_t> best_place(const std::set<const Region*>& regions, size_t pages,
                                     size_t grain) {
  std::pair best{pages + 1, ~size_t{0}};
  for (const Region* region : regions) {
    for (unsigned first = 0, end; first < kSlabsPerRegion; first = end + 1) {
      size_t free;
      std::tie(free, end) = stretch_at(region, first);
      const size_t begin = size_t{first} * kPagesPerSlab;
      for (size_t start = round_up(begin, grain); start + pages <= begin + free; start += grain) {
        size_t fresh = 0;
        for (size_t page = start; page < start + pages; ++page) {
          fresh += !region->slabs[page / kPagesPerSlab].backed.test(page % kPagesPerSlab);
        }
        best = std::min(best, std::pair{fresh, free});
      }
    }
  }
  return best;
}

TEST_P(PageHeapTest, NoPlaceForALongRunIsBetterThanTheOneThatItGets) {
  Random random = test::seeded(5);
  LOAM_TRACE_SEED(random);
  PageHeapModel model;
  std::set<const Region*> regions;
  for (int i = 0; i < 600; ++i) {
    step(model, random, model.used() < 40 * kPagesPerSlab ? 60 : 30);
    for (const auto& [address, run] : model.runs()) regions.insert(region_at(address));
    if (random.chance(10)) model.heap().purge_all();
    const size_t pages = kPagesPerSlab + 1 + random.below(3 * kPagesPerSlab);
    const size_t grain = random.chance(80) ? kPagesPerSlab : 4 * kPagesPerSlab;
    // This request makes parked runs join the bitmaps.
    const uintptr_t first = model.large(kPagesPerSlab + 1);
    regions.insert(region_at(first));
    model.free(first);
    const auto [fresh, free] = best_place(regions, pages, grain);
    const uint64_t before = model.heap().stats().fresh_pages;
    const uintptr_t run = model.large(pages, grain);
    ASSERT_NE(run, 0u);
    const uint64_t taken = model.heap().stats().fresh_pages - before;
    model.free(run);
    if (free == ~size_t{0}) continue;  // the heap grew
    ASSERT_EQ(taken, fresh) << pages << " pages";
    if (fresh == 0 && regions.size() > 1) continue;  // the run is in the first region that has one
    const Region* const region = region_at(run);
    unsigned slab = Region::page_of(run).index / kPagesPerSlab;
    while (slab != 0 && region->whole.test(slab - 1)) --slab;
    ASSERT_EQ(stretch_at(region, slab).first, free) << pages << " pages";
  }
  model.check();
}

TEST_P(PageHeapTest, ALongRunEndsInABackedBeginningRatherThanLieInFreshBlocksAlone) {
  PageHeapModel model;
  model.heap().keep_falls();
  const uintptr_t whole = model.large(4 * kPagesPerSlab);
  const uintptr_t half = model.large(kPagesPerSlab / 2), other = model.large(kPagesPerSlab / 2);
  ASSERT_EQ(half, whole + 4 * kSlabBytes);
  ASSERT_EQ(other, half + kSlabBytes / 2);
  model.free(whole);
  ASSERT_GE(model.heap().purge_all().count, 4 * kPagesPerSlab);
  model.free(half);
  const uint64_t fresh = model.heap().stats().fresh_pages;
  EXPECT_EQ(model.large(kPagesPerSlab + kPagesPerSlab / 2), whole + 3 * kSlabBytes);
  EXPECT_EQ(model.heap().stats().fresh_pages, fresh + kPagesPerSlab);
  model.check();
}

TEST_P(PageHeapTest, ALongRunIsFoundByFewLooksHoweverMuchIsFree) {
  PageHeapModel model;
  model.heap().keep_falls();
  std::vector<uintptr_t> runs;
  for (int i = 0; i < 400; ++i) runs.push_back(model.large(kPagesPerSlab));
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i % 50 != 49) model.free(runs[i]);
  }
  const size_t pages = kPagesPerSlab + kPagesPerSlab / 2;
  // All free pages are backed.
  model.free(model.large(pages));
  EXPECT_LE(model.heap().places_looked_at(), 2u);
  // No free page is backed.
  static_cast<void>(model.heap().purge_all());
  const uintptr_t low = model.large(pages);
  EXPECT_LE(model.heap().places_looked_at(), 2u);
  // A few free pages are backed: one look for them, and one for all other stretches.
  const uintptr_t next = model.large(8 * kPagesPerSlab);
  const uintptr_t far = model.large(8 * kPagesPerSlab);
  model.free(far);
  const uint64_t fresh = model.heap().stats().fresh_pages;
  const uintptr_t again = model.large(pages);
  EXPECT_EQ(again, far);
  EXPECT_EQ(model.heap().stats().fresh_pages, fresh);
  EXPECT_LE(model.heap().places_looked_at(), 3u);
  model.free(low);
  model.free(next);
  model.check();
}

TEST_P(PageHeapTest, EveryAlignmentUpToHalfARegionIsKept) {
  for (const size_t pages : {size_t{1}, size_t{7}, size_t{511}, size_t{513}, kMaxRun.count}) {
    PageHeapModel model;
    for (size_t alignment = 1; alignment <= kPagesPerRegion / 2; alignment *= 2) {
      ASSERT_NE(model.large(pages, alignment), 0u) << pages << " at " << alignment;
      ASSERT_NE(model.span(1), 0u);
    }
    model.check();
    ASSERT_FALSE(HasFailure());
    model.free_all();
    model.check();
  }
}

TEST_P(PageHeapTest, ABackedRunIsPreferredToOneThatWouldFault) {
  PageHeapModel model;
  const size_t n = 16;
  const uintptr_t a = model.large(n, 1, n * kPageBytes), wall1 = model.large(n, 1, 1);
  const uintptr_t b = model.large(n, 1, n * kPageBytes), wall2 = model.large(n, 1, 1);
  model.free(a);
  ASSERT_EQ(model.heap().purge_all().count, n);
  model.free(b);
  bool zero = true;
  EXPECT_EQ(model.large(n, 1, 0, &zero), b) << "the backed hole, though the other lies lower";
  EXPECT_FALSE(zero);
  EXPECT_EQ(model.large(n, 1, 0, &zero), a);
  EXPECT_TRUE(zero);
  model.free(wall1);
  model.free(wall2);
  model.check();
}

TEST_P(PageHeapTest, ResidentMemoryDoesNotGrowWhileSomethingBackedFits) {
  Random random = test::seeded(3);
  LOAM_TRACE_SEED(random);
  PageHeapModel model;
  std::vector<uintptr_t> runs;
  for (int i = 0; i < 40; ++i) runs.push_back(model.large(64, 1, 64 * kPageBytes));
  const uint64_t fresh = model.heap().stats().fresh_pages;
  for (int i = 0; i < 2000; ++i) {
    const size_t k = random.below(runs.size());
    model.free(runs[k]);
    runs[k] = model.large(64, 1, 64 * kPageBytes);
  }
  EXPECT_EQ(model.heap().stats().fresh_pages, fresh);
}

TEST_P(PageHeapTest, TheSmallestHoleThatFitsIsFilled) {
  PageHeapModel model;
  std::vector<uintptr_t> holes;
  for (const size_t pages : {40, 20, 30}) {
    holes.push_back(model.large(pages));
    ASSERT_NE(model.large(1), 0u);  // a wall
  }
  for (const uintptr_t hole : holes) model.free(hole);
  EXPECT_EQ(model.large(20), holes[1]);
  EXPECT_EQ(model.large(21), holes[2]);
  EXPECT_EQ(model.large(31), holes[0]);
  model.check();
}

TEST_P(PageHeapTest, SpansAndLargeRunsLiveInDifferentBlocks) {
  PageHeapModel model;
  const uintptr_t span = model.span(4), large = model.large(4);
  EXPECT_NE(span / kSlabBytes, large / kSlabBytes);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(model.span(4) / kSlabBytes, span / kSlabBytes);
    EXPECT_EQ(model.large(4) / kSlabBytes, large / kSlabBytes);
  }
}

TEST_P(PageHeapTest, ARunGrowsWhereItStandsOnlyIntoFreePages) {
  PageHeapModel model;
  const uintptr_t a = model.large(10);
  EXPECT_TRUE(model.resize(a, 100));
  const uintptr_t b = model.large(10);
  ASSERT_EQ(b, a + 100 * kPageBytes);
  EXPECT_FALSE(model.resize(a, 101));
  EXPECT_EQ(model.runs().at(a).span->large.pages, 100u);
  model.free(b);
  EXPECT_TRUE(model.resize(a, kPagesPerSlab)) << "to the end of its slab";
  model.check();
}

TEST_P(PageHeapTest, ARunThatBeginsABlockGrowsIntoThoseBehindIt) {
  PageHeapModel model;
  const uintptr_t a = model.large(10);
  ASSERT_EQ(a % kSlabBytes, 0u);
  for (size_t pages = 10; pages <= 10 * kPagesPerSlab; pages += 300) {
    EXPECT_TRUE(model.resize(a, pages)) << "and the heap's memory becomes longer";
    model.check();
  }
  EXPECT_TRUE(model.resize(a, 10 * kPagesPerSlab));
  const uintptr_t behind = model.large(10);
  ASSERT_EQ(behind, a + 10 * kSlabBytes);
  EXPECT_FALSE(model.resize(a, 10 * kPagesPerSlab + 1));
  model.check();
  EXPECT_TRUE(model.resize(a, 2 * kPagesPerSlab + 7));
  const uintptr_t between = model.large(10 * kPagesPerSlab, 1, kPageBytes);
  EXPECT_TRUE(model.resize(a, 10 * kPagesPerSlab - 1)) << "all that it gave back";
  EXPECT_FALSE(model.resize(a, 11 * kPagesPerSlab)) << "a slab in use lies in the way";
  model.check();
  model.free(behind);
  EXPECT_TRUE(model.resize(a, 10 * kPagesPerSlab + 1));
  model.check();
  model.free(between);
  model.free_all();
  model.check();
}

TEST_P(PageHeapTest, ARunGrowsIntoTheFreeBeginningOfABlockInUse) {
  PageHeapModel model;
  const uintptr_t a = model.large(kPagesPerSlab);
  const uintptr_t first = model.large(20), second = model.large(20);
  ASSERT_EQ(first, a + kSlabBytes);
  ASSERT_EQ(second, first + 20 * kPageBytes);
  model.free(first);
  EXPECT_FALSE(model.resize(a, kPagesPerSlab + 21));
  EXPECT_TRUE(model.resize(a, kPagesPerSlab + 20));
  model.check();
  model.free(second);
  model.check();
}

TEST_P(PageHeapTest, ARunInsideABlockStaysInIt) {
  // Otherwise the run might shrink to one that lies in two slabs, and is short enough to be parked
  // or kept.
  PageHeapModel model;
  const uintptr_t first = model.large(12), a = model.large(500);
  ASSERT_EQ(a, first + 12 * kPageBytes);
  EXPECT_FALSE(model.resize(a, 501));
  model.check();
}

TEST_P(PageHeapTest, ARunAtItsRegionsEndDoesNotGrow) {
  PageHeapModel model;
  std::vector<uintptr_t> runs;
  do {
    runs.push_back(model.large(kMaxRun.count));
  } while ((runs.back() + kMaxRun.bytes()) % kRegionBytes != 0 && runs.size() < 64);
  ASSERT_EQ((runs.back() + kMaxRun.bytes()) % kRegionBytes, 0u);
  EXPECT_TRUE(model.resize(runs.back(), kMaxRun.count - 1));
  EXPECT_TRUE(model.resize(runs.back(), kMaxRun.count));
  EXPECT_FALSE(model.resize(runs.back(), kMaxRun.count + 1));
  model.check();
}

TEST_P(PageHeapTest, AShrunkRunGivesItsTailBackAcrossBlocks) {
  PageHeapModel model;
  model.heap().keep_falls();
  const uintptr_t a = model.large(5 * kPagesPerSlab, 1, 5 * kSlabBytes);
  EXPECT_TRUE(model.resize(a, 10));
  model.check();
  EXPECT_EQ(model.heap().stats().dirty.count, 5 * kPagesPerSlab - 10);
  EXPECT_EQ(model.large(4 * kPagesPerSlab), a + kSlabBytes);
  model.check();
}

TEST_P(PageHeapTest, PurgeAllLeavesNothingDirtyAndNothingResident) {
  Random random = test::seeded(4);
  LOAM_TRACE_SEED(random);
  PageHeapModel model;
  for (int i = 0; i < 300; ++i) {
    const unsigned pages = random.magnitude(200);
    model.large(pages, 1, pages * kPageBytes);
    const unsigned span_pages = random.between(1, 32);
    model.span(span_pages, 5, span_pages * kPageBytes);
  }
  for (int i = 0; i < 300; ++i) model.free(model.random_run(random));
  const Pages dirty = model.heap().stats().dirty;
  const Pages purged = model.heap().purge_all();
  model.check();
  model.check_contents();
  if (grain() == 1) {
    EXPECT_EQ(purged, dirty);
    EXPECT_EQ(model.heap().stats().dirty.count, 0u);
    EXPECT_EQ(fake::resident_bytes(), model.used() * kPageBytes);
  } else {
    // A page of the system must stay if a live run has a part of it.
    EXPECT_LE(fake::resident_bytes(),
              (model.used() + 2 * grain() * model.runs().size()) * kPageBytes);
  }
  model.free_all();
  model.heap().purge_all();
  EXPECT_EQ(model.heap().stats().dirty.count, 0u) << "whole slabs can go whatever the page size";
  EXPECT_EQ(fake::resident_bytes(), 0u);
}

TEST_P(PageHeapTest, OneFreedPageOfAnEmptyBlockCanBePurged) {
  PageHeapModel model;
  model.free(model.large(1, 1, kPageBytes));
  EXPECT_EQ(model.heap().purge_all().count, 1u);
  EXPECT_EQ(fake::resident_bytes(), 0u);
}

TEST_P(PageHeapTest, UnbackedPagesOfASpanArriveUnbacked) {
  PageHeapModel model;
  const uintptr_t address = model.span(32, 1, 32 * kPageBytes);
  const uintptr_t wall = model.span(32, 1, 32 * kPageBytes);
  Span* span = model.runs().at(address).span;
  // As compact does: the middle half of the span's pages was purged.
  ASSERT_TRUE(os::purge(reinterpret_cast<void*>(address + 16 * kPageBytes), 16 * kPageBytes));
  span->unbacked_pages = 0xffff0000u;
  const uint64_t fresh = model.heap().stats().fresh_pages;
  model.heap().free(span);
  EXPECT_EQ(model.heap().stats().dirty.count, 16u);
  EXPECT_TRUE(model.heap().is_valid());
  Span* again = model.heap().allocate_span({Pages(16), SizeClass(1), SizeClass(1), 0});
  EXPECT_EQ(span_base(again), address) << "the backed half first";
  EXPECT_EQ(model.heap().stats().fresh_pages, fresh);
  Span* rest = model.heap().allocate_large(Pages(16), Pages(1), 1, 0).span;
  EXPECT_TRUE(model.heap().is_valid());
  EXPECT_NE(rest, nullptr);
  static_cast<void>(wall);
}

TEST_P(PageHeapTest, ManyRegionsServeManyGibibytes) {
  PageHeapModel model;
  const size_t runs = 40 * kRegionBytes / kMaxRun.bytes();  // 40 GiB
  for (size_t i = 0; i < runs; ++i) ASSERT_NE(model.large(kMaxRun.count, 1, 1), 0u);
  model.check();
  EXPECT_GE(model.heap().stats().committed_bytes, 40 * kRegionBytes);
  model.free_all();
  model.check();
}

TEST_P(PageHeapTest, SpaceIsCommittedInStepsThatFollowUse) {
  if (os::kChargesCommit) GTEST_SKIP() << "where commit is charged: a slab at a time";
  PageHeapModel model;
  model.span(1);
  EXPECT_EQ(model.heap().stats().committed_bytes, kSlabBytes) << "a small program commits little";
  while (model.used() < 100 * kPagesPerSlab) model.large(kPagesPerSlab);
  EXPECT_LE(model.heap().stats().committed_bytes, 120 * kSlabBytes);
  EXPECT_LE(fake::calls(fake::Call::kCommit), 80u);
}

INSTANTIATE_TEST_SUITE_P(Granularity, PageHeapTest, testing::Values(4096, 16384, 65536));

TEST(PageHeapCounts, FreshPurgedAndPeakAddUp) {
  fake::reset();
  PageHeapModel model;
  const uintptr_t a = model.large(100, 1, 100 * kPageBytes);
  const uintptr_t b = model.large(50, 1, 50 * kPageBytes);
  model.free(a);
  model.free(b);
  model.heap().purge_all();
  model.large(60);
  const PageStats stats = model.heap().stats();
  EXPECT_EQ(stats.fresh_pages, 210u);
  EXPECT_EQ(stats.purged_pages, 150u);
  EXPECT_EQ(stats.peak_used.count, 150u);
  EXPECT_EQ(stats.refused_calls, 0u);
  EXPECT_EQ(stats.reserved_bytes, kRegionBytes);
  EXPECT_GT(stats.metadata_bytes, 0u);
  EXPECT_EQ(stats.longest_backed_run_bytes, 0u);
}

}  // namespace
}  // namespace loam
