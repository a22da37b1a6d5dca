// Parked runs: they join each other at once, are cut for shorter requests, never cause fresh pages,
// and do not wait for ever.
#include <set>
#include <vector>

#include "fake_system/fake.h"
#include "pages/page_heap_model.h"
#include "pages/shard_runs.h"

namespace loam {
namespace {

namespace fake = os::fake;
using test::PageHeapModel;

class ParkedRunsTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    model.heap().keep_falls();
  }

  [[nodiscard]] PageStats stats() { return model.heap().stats(); }

  void pass(int ms) {
    for (int passed = 0; passed < ms; passed += 10) {
      fake::advance_ms(10);
      model.heap().tick();
    }
  }

  // Parked runs join the bitmaps after a while, and are purged by the time of their free.
  void expect_joined_and_purged() {
    pass(3000);
    EXPECT_EQ(stats().parked, Pages(0));
    fake::advance_ms(PurgePolicy::kHoldMs);
    pass(2000);
    EXPECT_LE(stats().dirty, PurgePolicy::kFloor);
    model.check();
  }

  PageHeapModel model;
};

TEST_F(ParkedRunsTest, TheSameLengthTakesTheLastFreedRunAsItStands) {
  const uintptr_t a = model.large(17, 1, 17 * kPageBytes);
  const uintptr_t between = model.large(1);
  const uintptr_t b = model.large(17, 1, 17 * kPageBytes);
  ASSERT_NE(model.large(1), 0u);
  model.free(a);
  model.free(b);
  EXPECT_EQ(stats().parked, Pages(34));
  EXPECT_EQ(model.large(17, 1, 17 * kPageBytes), b);
  EXPECT_EQ(model.large(17, 1, 17 * kPageBytes), a);
  EXPECT_EQ(stats().parked, Pages(0));
  model.free(between);
  model.check();
}

TEST_F(ParkedRunsTest, NeighboursJoinInWhateverOrderTheyAreFreed) {
  const size_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    uintptr_t runs[3];
    for (uintptr_t& run : runs) run = model.large(10, 1, 10 * kPageBytes);
    ASSERT_EQ(runs[2], runs[0] + Pages(20).bytes());
    for (const size_t i : order) {
      model.free(runs[i]);
      model.check();
    }
    const uint64_t fresh = stats().fresh_pages;
    const uintptr_t whole = model.large(30);
    EXPECT_EQ(whole, runs[0]) << "one run of 30 pages";
    EXPECT_EQ(stats().fresh_pages, fresh);
    model.free(whole);
  }
  model.check();
}

TEST_F(ParkedRunsTest, AShorterRequestTakesTheFirstPagesOfTheShortestThatHoldsIt) {
  const uintptr_t longer = model.large(40, 1, 40 * kPageBytes);
  ASSERT_NE(model.large(1), 0u);
  const uintptr_t shorter = model.large(20, 1, 20 * kPageBytes);
  ASSERT_NE(model.large(1), 0u);
  model.free(longer);
  model.free(shorter);
  EXPECT_EQ(model.large(12), shorter);
  EXPECT_EQ(stats().parked, Pages(40 + 8));
  EXPECT_EQ(model.large(9), longer) << "the rest of the shorter one is too short";
  EXPECT_EQ(model.large(8), shorter + Pages(12).bytes());
  EXPECT_EQ(stats().parked, Pages(31));
  model.check();
}

TEST_F(ParkedRunsTest, RunsOfTwoBlocksOrTwoKindsDoNotJoin) {
  const uintptr_t first = model.large(kPagesPerSlab, 1, kSlabBytes);
  const uintptr_t second = model.large(kPagesPerSlab, 1, kSlabBytes);
  model.free(first);
  model.free(second);
  model.check();  // no parked run is longer than a slab
  const uintptr_t large = model.large(4), span = model.span(4);
  model.free(large);
  model.free(span);
  model.check();  // each run in the lists of its kind
}

TEST_F(ParkedRunsTest, ChurnLeavesNoRecordsBehind) {
  test::Random random(7);
  std::vector<uintptr_t> runs;
  for (int i = 0; i < 100; ++i) runs.push_back(model.large(1 + random.below(40)));
  const Region* region = region_at(runs[0]);
  uint32_t most = 0;
  for (int i = 0; i < 20'000; ++i) {
    uintptr_t& run = runs[random.below(runs.size())];
    model.free(run);
    run = model.large(1 + random.below(40));
    if (i == 5000) most = region->spans_used;
    if (i % 1000 == 0) model.check();
  }
  // 100 live runs, and at most one parked run in each gap between them.
  EXPECT_LE(region->spans_used, 2 * 100 + 2);
  EXPECT_LE(region->spans_used, most + 20) << "records are given back when their runs join";
  model.check();
}

// If the time of the last free counted, a run that is cut and joined all the time would stay young
// for ever, and would never be purged.
TEST_F(ParkedRunsTest, ALongRunGetsOldWhilePartsOfItComeAndGo) {
  std::vector<uintptr_t> runs;
  for (int i = 0; i < 4000; ++i) runs.push_back(model.large(16, 1, 16 * kPageBytes));
  for (const uintptr_t run : runs) model.free(run);
  for (int ms = 0; ms < 3 * static_cast<int>(PurgePolicy::kHoldMs); ms += 10) {
    fake::advance_ms(10);
    for (int i = 0; i < 100; ++i) model.free(model.large(7, 1, 7 * kPageBytes));
    model.heap().tick();
  }
  EXPECT_LE(stats().dirty, PurgePolicy::kFloor);
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
  // 9,600 pages wait in runs of 16. Runs of half and of twice this length, and whole slabs, are
  // taken from them.
  for (int i = 0; i < 100; ++i) model.large(8, 1, 8 * kPageBytes);
  for (int i = 0; i < 100; ++i) model.large(32, 1, 32 * kPageBytes);
  for (int i = 0; i < 9; ++i) model.large(kPagesPerSlab, 1, kSlabBytes);
  EXPECT_EQ(stats().fresh_pages, fresh);
  model.check();
}

TEST_F(ParkedRunsTest, WhatARequestLeavesGoesOnWaiting) {
  std::vector<uintptr_t> runs;
  for (int i = 0; i < 4000; ++i) runs.push_back(model.large(16, 1, 16 * kPageBytes));
  for (const uintptr_t run : runs) model.free(run);
  model.large(15, 1, 15 * kPageBytes);
  EXPECT_EQ(stats().parked, Pages(4000 * 16 - 15));
  model.large(17, 1, 17 * kPageBytes);
  EXPECT_EQ(stats().parked, Pages(4000 * 16 - 15 - 17));
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
  expect_joined_and_purged();
}

TEST_F(ParkedRunsTest, TrimAndResizeSeeThroughWhatWaits) {
  const uintptr_t a = model.large(16, 1, 16 * kPageBytes);
  const uintptr_t b = model.large(16, 1, 16 * kPageBytes);
  ASSERT_EQ(b, a + Pages(16).bytes());
  ASSERT_NE(model.large(1), 0u);
  const uintptr_t elsewhere = model.large(32, 1, 32 * kPageBytes);
  model.free(b);
  model.free(elsewhere);
  EXPECT_TRUE(model.resize(a, 30)) << "into a parked neighbour";
  EXPECT_EQ(stats().parked, Pages(32)) << "the others go on waiting";
  model.free(a);
  model.heap().purge_all();
  EXPECT_EQ(stats().parked, Pages(0));
  EXPECT_EQ(stats().dirty, Pages(0));
  model.check();
}

class WholeSpansTest : public ParkedRunsTest {
 protected:
  static constexpr size_t kSpan = 16;

  // Takes so many spans, one behind the other, and frees all.
  std::vector<uintptr_t> batch(int count, size_t pages = kSpan) {
    std::vector<uintptr_t> spans;
    for (int i = 0; i < count; ++i) spans.push_back(model.span(pages, 112, pages * kPageBytes));
    for (const uintptr_t span : spans) model.free(span);
    return spans;
  }
};

TEST_F(WholeSpansTest, SpansOfOneLengthGoRoundAsTheyStand) {
  const std::vector<uintptr_t> spans = batch(1000);
  EXPECT_EQ(stats().parked, Pages(1000 * kSpan));
  EXPECT_EQ(stats().used, Pages(0));
  const uint64_t fresh = stats().fresh_pages;
  for (const uintptr_t span : spans) EXPECT_TRUE(model.waits_whole(span));
  model.check();
  for (size_t i = spans.size(); i-- > 0;) EXPECT_EQ(model.span(kSpan, 112), spans[i]);
  EXPECT_EQ(stats().fresh_pages, fresh);
  EXPECT_EQ(stats().parked, Pages(0));
  model.check();
}

TEST_F(WholeSpansTest, SeveralAreTakenAndGivenAtOnce) {
  const std::vector<uintptr_t> spans = batch(5);
  const auto take = [&](unsigned most) {
    return model.heap()
        .allocate_spans(most, {Pages(kSpan), SizeClass(112), SizeClass(112), 0},
                        PageHeap::Source::kAny)
        .span;
  };
  Span* const three = take(3);
  unsigned count = 0;
  for (const Span* span = three; span != nullptr; span = List<Span>::next(span)) {
    EXPECT_EQ(span->kind, SpanKind::kSmall);
    EXPECT_EQ(span->unbacked_pages, 0u);
    EXPECT_EQ(span_base(span), spans[4 - count++]);
  }
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(stats().used, Pages(3 * kSpan));
  Span* const two = take(9);
  ASSERT_NE(List<Span>::next(two), nullptr);
  EXPECT_EQ(List<Span>::next(List<Span>::next(two)), nullptr) << "no more wait";
  EXPECT_TRUE(model.heap().is_valid());
  model.heap().free_spans(three);
  model.heap().free_spans(two);
  EXPECT_EQ(stats().parked, Pages(5 * kSpan));
  model.check();
}

TEST_F(WholeSpansTest, AnotherClassOfTheLengthTakesOneAndNamesItsPages) {
  const std::vector<uintptr_t> spans = batch(2);
  EXPECT_EQ(model.span(kSpan, 101), spans[1]);
  EXPECT_TRUE(model.waits_whole(spans[0]));
  for (uint64_t word : span_at(spans[1])->free_bits) EXPECT_EQ(word, 0u);
  model.check();
}

TEST_F(WholeSpansTest, AnotherLengthGetsThemJoinedBeforeFreshMemory) {
  batch(600);
  const uint64_t fresh = stats().fresh_pages;
  for (int i = 0; i < 100; ++i) model.span(24, 1, 24 * kPageBytes);
  model.check();
  batch(100, kSpan);
  for (int i = 0; i < 9; ++i) model.large(kPagesPerSlab, 1, kSlabBytes);
  EXPECT_EQ(stats().fresh_pages, fresh);
  model.check();
}

TEST_F(WholeSpansTest, SpansOfSeveralLengthsWaitWholeAndEachServesItsOwn) {
  const uintptr_t span = model.span(kSpan, 112), other = model.span(kSpan + 1, 113);
  model.free(span);
  model.free(other);
  EXPECT_TRUE(model.waits_whole(span));
  EXPECT_TRUE(model.waits_whole(other));
  model.check();
  EXPECT_EQ(model.span(kSpan, 112), span);
  EXPECT_TRUE(model.waits_whole(other));
  EXPECT_EQ(model.span(kSpan + 1, 113), other);
  model.free(other);
  const uint64_t fresh = stats().fresh_pages;
  const uintptr_t one = model.span(1, 1);
  EXPECT_EQ(stats().fresh_pages, fresh) << "a span that waits whole serves before fresh memory";
  model.free(one);
  EXPECT_FALSE(model.waits_whole(one)) << "a short one is rather joined";
  model.check();
}

TEST_F(WholeSpansTest, WhatWaitsWholeForLongIsPurgedByTheTimeOfItsFree) {
  batch(2000);
  expect_joined_and_purged();
}

TEST_F(WholeSpansTest, TrimGivesThemBack) {
  batch(100);
  model.heap().purge_all();
  EXPECT_EQ(stats().parked, Pages(0));
  EXPECT_EQ(stats().dirty, Pages(0));
  model.check();
}

// Each slab has one live span. New short spans use as few of these slabs as possible, wherever
// freed runs wait. So the other slabs become whole when their spans are freed.
TEST_F(WholeSpansTest, ShortSpansFillOneBlockAfterTheOther) {
  for (const int ms : {0, 150}) {
    constexpr size_t kBlocks = 20, kSpansPerBlock = kPagesPerSlab / kSpan;
    std::vector<uintptr_t> freed, pins;
    for (size_t i = 0; i < kBlocks * kSpansPerBlock; ++i) {
      (i % kSpansPerBlock == 1 ? pins : freed)
          .push_back(model.span(kSpan, 112, kSpan * kPageBytes));
    }
    for (const uintptr_t span : freed) model.free(span);
    pass(ms);
    const uint64_t fresh = stats().fresh_pages;
    std::set<uintptr_t> slabs;
    std::vector<uintptr_t> shorts;
    for (size_t i = 0; i < 2 * kPagesPerSlab; ++i) {
      shorts.push_back(model.span(1 + i % 2, 1, kPageBytes));
      slabs.insert(shorts.back() / kSlabBytes);
    }
    EXPECT_LE(slabs.size(), 5u) << "1,536 pages, 496 a slab, and the first may lie where any lay";
    model.check();
    for (const uintptr_t span : pins) model.free(span);
    const uintptr_t large = model.large(4 * kPagesPerSlab, 1, kPageBytes);
    EXPECT_EQ(stats().fresh_pages, fresh) << "and a long run lies in the others";
    model.free(large);
    for (const uintptr_t span : shorts) model.free(span);
    model.check();
    model.heap().purge_all();
  }
}

TEST_F(WholeSpansTest, ABlockThatIsFilledMayBecomeWholeOrAnotherKinds) {
  for (int round = 0; round < 2; ++round) {
    const std::vector<uintptr_t> spans = batch(40);
    const uintptr_t one = model.span(1, 1, kPageBytes);
    model.span(3, 1, 3 * kPageBytes);
    model.free_all();
    model.heap().purge_all();
    // First all slabs are whole, and then all have large runs.
    if (round == 1) {
      for (int i = 0; i < 8; ++i) model.large(kPagesPerSlab / 4, 1, kPagesPerSlab / 4 * kPageBytes);
    }
    const uintptr_t next = model.span(1, 1, kPageBytes);
    model.check();
    if (round == 0) {
      EXPECT_EQ(next / kSlabBytes, one / kSlabBytes);
    }
    for (int i = 0; i < 600; ++i) model.span(1 + i % 7, 1, kPageBytes);
    model.check();
    model.free_all();
  }
}

// One heap, with as many shards as threads can have, each with a slab of its own.
class ShardsTest : public ParkedRunsTest {
 protected:
  void SetUp() override {
    ParkedRunsTest::SetUp();
    for (unsigned s = 0; s < shards(); ++s) {
      ASSERT_EQ(heap().join_shard(), s) << "the first that no thread has";
      most_of_block[s] = large(kPagesPerSlab - kPart, s);
      part_of_block[s] = large(kPart, s);
      ASSERT_EQ(part_of_block[s]->first_page, most_of_block[s]->first_page + kPagesPerSlab - kPart);
    }
    ASSERT_FALSE(heap().hints().wants_ticks());
  }

  [[nodiscard]] virtual unsigned shards() const { return kPageShards; }
  PageHeap& heap() { return model.heap(); }
  Span* large(size_t pages, unsigned shard) {
    return heap().allocate_large(Pages(pages), Pages(1), Pages(pages).bytes(), 0, shard).span;
  }

  // Parks a shard's part so often that the shard belongs to its threads alone.
  Span* busy_shard(unsigned shard) {
    Span* part = part_of_block[shard];
    for (int i = 0; i < 1024; ++i) {
      heap().give_run(part);
      part = heap().take_run(Pages(kPart), 0, shard).first;
      publish_large(part);
    }
    return part;
  }

  // How many runs of nearly a slab each must be parked in a busy shard before they serve another
  // one, in a heap that uses so many pages more; 9 if that many do not suffice.
  unsigned parked_when_served(size_t more = 2 * kReserveShare * kPageShards * kMostReserved.count) {
    if (more != 0) static_cast<void>(large(more, 0));
    heap().tick();
    constexpr unsigned kOwn = 5, kOther = 4;
    busy_shard(kOwn);
    Span* runs[8];
    for (Span*& run : runs) run = large(kLong, kOwn);
    for (unsigned parked = 1; parked <= 8; ++parked) {
      heap().give_run(runs[parked - 1]);
      if (Span* const served = heap().take_run(Pages(kPart), 0, kOther).first) {
        publish_large(served);
        heap().give_run(served);
        EXPECT_TRUE(heap().is_valid());
        return parked;
      }
    }
    return 9;
  }

  static constexpr size_t kPart = 20;
  static constexpr size_t kLong = kPagesPerSlab - 2;
  Span* most_of_block[kPageShards];
  Span* part_of_block[kPageShards];
};
using ShardsImplementation = ShardsTest;  // counts locks

TEST_F(ShardsImplementation,
       WhatIsParkedWaitsInTheShardOfItsBlockAndServesItsThreadsUnderItsLockAlone) {
  EXPECT_EQ(busy_shard(5), part_of_block[5]);
  uint64_t before[kPageShards];
  for (unsigned s = 0; s < kPageShards; ++s) before[s] = heap().shard_mutex(s).acquisitions();
  const uint64_t central = heap().mutex().acquisitions();
  heap().give_run(part_of_block[5]);
  EXPECT_EQ(heap().shard_mutex(5).acquisitions(), before[5] + 1);
  EXPECT_EQ(heap().take_run(Pages(kPart), 0, 4).first, nullptr)
      << "it is left to the threads of its shard";
  Span* again = heap().take_run(Pages(kPart), 0, 5).first;
  EXPECT_EQ(again, part_of_block[5]);
  EXPECT_EQ(heap().mutex().acquisitions(), central);
  for (unsigned s = 0; s < kPageShards; ++s) {
    EXPECT_EQ(heap().shard_mutex(s).acquisitions(), before[s] + (s == 5 ? 2 : 0)) << s;
  }
  publish_large(again);
  heap().give_run(again);
  heap().leave_shard(5);
  EXPECT_EQ(heap().take_run(Pages(kPart), 0, 4).first, again) << "nobody has that shard any more";
  publish_large(again);
  heap().free(again);
  EXPECT_TRUE(heap().is_valid());
}

class FewShardsTest : public ShardsTest {
 protected:
  static constexpr unsigned kShards = 6;
  [[nodiscard]] unsigned shards() const override { return kShards; }
};

TEST_F(ShardsTest, AShardsThreadsAreLeftItsRunsUpToALimit) {
  static_assert(kPageShards * kReservedByShard.count > kMostReserved.count);
  static_assert(2 * kLong <= kMostReserved.count && 3 * kLong > kMostReserved.count);
  EXPECT_EQ(parked_when_served(), 3u);
}

TEST_F(FewShardsTest, TheFewerShardsAreInUseTheLessIsLeftToTheThreadsOfEach) {
  constexpr size_t kLeft = kShards * kReservedByShard.count;
  static_assert(kLong <= kLeft && 2 * kLong > kLeft);
  EXPECT_EQ(parked_when_served(), 2u);
}

TEST_F(ShardsTest, AllReservesTogetherAreAPartOfTheHeap) {
  static_assert(kReserveShare > 1, "a slab a shard, and each reserve is shorter");
  EXPECT_EQ(parked_when_served(0), 1u);
}

TEST_F(ShardsTest, WhatWaitsInAllShardsTogetherIsPurgedOnceItPassesTheFloor) {
  constexpr unsigned kMost = PurgePolicy::kFloor.count / kPart;
  static_assert(kMost < kPageShards, "all parts together are more than the floor");
  for (unsigned s = 0; s < kPageShards; ++s) {
    EXPECT_EQ(heap().hints().wants_ticks(), s > kMost) << s << " parts of " << kPart << " pages";
    heap().give_run(part_of_block[s]);
  }
  EXPECT_EQ(stats().parked, Pages(kPart * kPageShards));
  EXPECT_EQ(stats().used, Pages((kPagesPerSlab - kPart) * kPageShards));
  EXPECT_TRUE(heap().is_valid());
  fake::advance_ms(1000);
  heap().tick();
  EXPECT_EQ(stats().parked, Pages(0)) << "what waited for long joins the bitmaps, from every shard";
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(ShardsTest, AllOfThemArePurgedAndServeALongerRequestBeforeTheHeapGrows) {
  for (unsigned s = 0; s < kPageShards; ++s) heap().give_run(part_of_block[s]);
  for (unsigned s = 1; s < kPageShards; ++s) heap().give_run(most_of_block[s]);
  EXPECT_EQ(heap().purge_all(), Pages(kPageShards * kPagesPerSlab - (kPagesPerSlab - kPart)));
  EXPECT_EQ(stats().parked, Pages(0));
  EXPECT_TRUE(heap().is_valid());
  const size_t committed = stats().committed_bytes;
  Span* long_run = large((kPageShards - 1) * kPagesPerSlab, 0);
  ASSERT_NE(long_run, nullptr);
  EXPECT_EQ(stats().committed_bytes, committed);
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(ShardsImplementation, ABlockOnWhoseRunsOthersLiveBecomesTheirShards) {
  constexpr unsigned kBefore = 5, kAfter = 4, kTakes = 16;
  heap().give_run(part_of_block[kBefore]);
  for (unsigned take = 1; take <= kTakes; ++take) {
    Span* const run = heap().take_run(Pages(kPart / 2), 0, kAfter).first;
    ASSERT_NE(run, nullptr) << take;
    publish_large(run);
    ASSERT_EQ(PageHeap::shard_of(run), take < kTakes ? kBefore : kAfter) << take;
    ASSERT_EQ(stats().parked, Pages(kPart / 2)) << "the other half waits on";
    ASSERT_TRUE(heap().is_valid());
    if (take < kTakes) heap().give_run(run);
  }
  // The other half changed its shard with the slab, and runs that are freed in it wait there too.
  const uint64_t before = heap().shard_mutex(kBefore).acquisitions();
  Span* const half = heap().take_run(Pages(kPart / 2), 0, kAfter).first;
  ASSERT_NE(half, nullptr);
  publish_large(half);
  heap().give_run(half);
  heap().give_run(most_of_block[kBefore]);
  EXPECT_EQ(heap().shard_mutex(kBefore).acquisitions(), before);
  EXPECT_EQ(stats().parked, Pages(kPagesPerSlab - kPart / 2));
  EXPECT_TRUE(heap().is_valid());
}

// A batch of four runs, one behind the other in a slab, as a thread's cache gives it.
class BatchesTest : public ShardsTest {
 protected:
  void SetUp() override {
    ShardsTest::SetUp();
    for (Span*& run : runs) run = large(kPart, kOwn);
    ASSERT_EQ(runs[3]->first_page, runs[0]->first_page + 3 * kPart);
    fresh = stats().fresh_pages;
  }
  void give(unsigned first) {
    for (unsigned i = first; i < 4; ++i) {
      runs[i]->kind = SpanKind::kStanding;
      runs[i]->next = i < 3 ? runs[i + 1] : nullptr;
    }
    heap().give_batch(runs[first], 4 - first);
    EXPECT_EQ(stats().parked, Pages((4 - first) * kPart));
    EXPECT_TRUE(heap().is_valid());
  }

  static constexpr unsigned kOwn = 3, kOther = 9;
  Span* runs[4];
  uint64_t fresh = 0;
};
using BatchesImplementation = BatchesTest;  // counts locks

TEST_F(BatchesTest, RunsOfABlockThatHasMovedMeanwhileGoHomeOneByOne) {
  heap().give_run(runs[3]);
  for (int i = 0; i < 16; ++i) {
    runs[3] = heap().take_run(Pages(kPart), 0, kOther).first;
    ASSERT_NE(runs[3], nullptr);
    publish_large(runs[3]);
    if (i < 15) heap().give_run(runs[3]);
  }
  ASSERT_EQ(PageHeap::shard_of(runs[0]), kOther);
  Span* const stayed = part_of_block[kOwn];
  ASSERT_EQ(PageHeap::shard_of(stayed), kOwn);
  stayed->kind = runs[0]->kind = SpanKind::kStanding;
  stayed->next = runs[0];
  runs[0]->next = nullptr;
  heap().give_batch(stayed, 2);
  EXPECT_EQ(stats().parked, Pages(2 * kPart));
  EXPECT_TRUE(heap().is_valid());
  EXPECT_EQ(heap().take_run(Pages(kPart), 0, kOther).first, runs[0]);
  EXPECT_EQ(heap().take_run(Pages(kPart), 0, kOwn).first, stayed);
}

TEST_F(BatchesTest, ABatchThatWaitsInAShardWhoseBlockMovesIsJoinedFirst) {
  give(0);
  heap().give_run(part_of_block[kOwn]);
  for (int i = 0; i < 16; ++i) {
    Span* const run = heap().take_run(Pages(2), 0, kOther).first;
    ASSERT_NE(run, nullptr);
    publish_large(run);
    ASSERT_TRUE(heap().is_valid()) << i;
  }
  EXPECT_EQ(stats().parked, Pages(5 * kPart - 16 * 2));
}

TEST_F(BatchesImplementation, ItWaitsAsItStandsAndGoesWholeToARequestOfItsLength) {
  give(0);
  for (const Span* run : runs) EXPECT_EQ(span_at(span_base(run)), run) << "its page names it";
  const uint64_t before = heap().shard_mutex(kOwn).acquisitions();
  const PageHeap::Runs got = heap().take_run(Pages(kPart), 0, kOwn, Pages(3 * kPart), 3);
  EXPECT_EQ(heap().shard_mutex(kOwn).acquisitions(), before + 1);
  EXPECT_EQ(got.first, runs[0]);
  EXPECT_EQ(got.first->kind, SpanKind::kLarge);
  EXPECT_EQ(got.rest, runs[1]);
  EXPECT_EQ(got.rest_count, 3u);
  EXPECT_EQ(stats().parked, Pages(0));
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(BatchesTest, WhoHasNoRoomForItGetsOneOfItsRuns) {
  give(0);
  const PageHeap::Runs one = heap().take_run(Pages(kPart), 0, kOwn, Pages(3 * kPart - 1), 3);
  EXPECT_EQ(one.first, runs[0]);
  EXPECT_EQ(one.rest, nullptr);
  EXPECT_EQ(stats().parked, Pages(3 * kPart));
  EXPECT_TRUE(heap().is_valid());
  EXPECT_EQ(heap().take_run(Pages(kPart), 0, kOwn, Pages(2 * kPart), 2).rest_count, 2u)
      << "what is left fits";
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(BatchesTest, AnotherLengthGetsWhatItHoldsJoined) {
  give(0);
  const Span* longer = heap().take_run(Pages(4 * kPart), 0, kOwn).first;
  ASSERT_NE(longer, nullptr);
  EXPECT_EQ(longer->first_page, runs[0]->first_page);
  EXPECT_EQ(stats().parked, Pages(0));
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(BatchesTest, AnotherShardsThreadGetsItBeforeTheHeapTakesFreshPages) {
  give(0);
  Span* const one = large(kPart, kOther);
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(stats().parked, Pages(3 * kPart)) << "one of the batch, and the others wait on";
  EXPECT_TRUE(heap().is_valid());
  EXPECT_NE(large(3 * kPart, kOther), nullptr);
  EXPECT_EQ(stats().fresh_pages, fresh);
  EXPECT_EQ(stats().parked, Pages(0));
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(BatchesTest, ABlockAtAnAlignmentGetsItBeforeTheHeapTakesFreshPages) {
  give(0);
  ASSERT_NE(heap().allocate_large(Pages(32), Pages(32), Pages(32).bytes(), 0, kOwn).span, nullptr);
  EXPECT_EQ(stats().fresh_pages, fresh);
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(BatchesTest, ARunGrowsIntoTheBatchBehindIt) {
  give(1);
  EXPECT_TRUE(heap().resize_large(runs[0], Pages(2 * kPart), Pages(2 * kPart).bytes()));
  EXPECT_EQ(stats().fresh_pages, fresh);
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(BatchesTest, ItJoinsTheBitmapsWhenItHasWaitedForLong) {
  give(0);
  const uintptr_t base = span_base(runs[2]);
  fake::advance_ms(50);
  heap().tick();
  EXPECT_EQ(stats().parked, Pages(4 * kPart));
  fake::advance_ms(1000);
  heap().tick();
  EXPECT_EQ(stats().parked, Pages(0));
  EXPECT_EQ(span_at(base), nullptr);
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(BatchesTest, TrimGivesItBack) {
  give(0);
  EXPECT_EQ(heap().purge_all(), Pages(4 * kPart));
  EXPECT_EQ(stats().parked, Pages(0));
  EXPECT_TRUE(heap().is_valid());
}

}  // namespace
}  // namespace loam
