// What the page heap purges, and when, driven through pretended time. The recent peak stays, idle
// pages go, faults that purging caused stay within their budget, and no page is forgotten.
#include "pages/page_heap.h"

#include <algorithm>

#include "cache/thread_cache.h"
#include "fake_system/fake.h"
#include "pages/page_heap_model.h"

namespace loam {
namespace {

namespace fake = os::fake;
using test::PageHeapModel;
using test::Random;

constexpr auto kRate = static_cast<uint64_t>(PurgePolicy::kPagesPerSecond);
constexpr auto kCap = static_cast<uint64_t>(PurgePolicy::kBudgetCap);
constexpr uint64_t kTickMs = ThreadCache::kTickMs;

class PurgeTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    model.heap().keep_falls();
  }

  /// Lets time pass as with caches: a tick every few milliseconds while the heap wants ticks.
  void pass(uint64_t ms) {
    for (uint64_t t = 0; t < ms; t += kTickMs) {
      fake::advance_ms(kTickMs);
      if (model.heap().hints().wants_ticks()) model.heap().tick();
    }
  }

  static constexpr uint64_t kChurnMs = 400 * kTickMs;
  /// 1,000 slabs get frees all the time, and each has a long run of unwanted pages. None of them is
  /// ever idle, so only the budget of `threads` running threads may purge them. Returns how many
  /// pages were purged.
  uint64_t churn(unsigned threads) {
    fake::set_running_threads(threads);
    std::vector<uintptr_t> churned, wide;
    for (int i = 0; i < 1000; ++i) {
      wide.push_back(model.large(500, 1, 500 * kPageBytes));
      churned.push_back(model.large(12, 1, 1));
    }
    fake::advance_ms(20 * PurgePolicy::kHoldMs);
    for (const uintptr_t run : wide) model.free(run);
    model.heap().tick();
    const uint64_t before = purged();
    for (uint64_t ms = kTickMs; ms <= kChurnMs; ms += kTickMs) {
      for (uintptr_t& run : churned) {
        model.resize(run, 11);  // a free into the slab, and the page is taken again
        model.resize(run, 12);
      }
      fake::advance_ms(kTickMs);
      model.heap().tick();
      EXPECT_LE(purged() - before, kCap + kPagesPerSlab + threads * ms * kRate / 1000)
          << "after " << ms << " ms";
      if (HasFailure()) break;
    }
    return purged() - before;
  }

  [[nodiscard]] Pages dirty() { return model.heap().stats().dirty; }
  [[nodiscard]] uint64_t purged() { return model.heap().stats().purged_pages; }

  PageHeapModel model;
};

TEST_F(PurgeTest, AfterTheLastFreeAlmostNothingIsLeftWithinSeconds) {
  for (const size_t megabytes : {8, 100, 2000, 20'000}) {
    SCOPED_TRACE(testing::Message() << megabytes << " MiB freed");
    const size_t pages = (megabytes << 20) / kPageBytes;
    while (model.used() < pages) model.large(2048, 1, 2048 * kPageBytes);
    model.free_all();
    pass(10'000);
    EXPECT_LE(dirty(), PurgePolicy::kFloor);
    EXPECT_LE(fake::resident_bytes(), PurgePolicy::kFloor.bytes());
    model.check();
  }
}

TEST_F(PurgeTest, AfterASilenceCallsMakeUpForTheTicksThatWereMissed) {
  // Unmerged spans wait for requests of their length: a tick joins a bounded number of them.
  for (const bool spans : {false, true}) {
    for (const size_t megabytes : {100, 1000}) {
      SCOPED_TRACE(testing::Message() << megabytes << " MiB freed, spans: " << spans);
      // The heap no longer expects that an earlier peak returns.
      pass(3 * PurgePolicy::kHoldMs);
      const size_t pages = (megabytes << 20) / kPageBytes;
      while (model.used() < pages)
        spans ? model.span(16, 1, 1) : model.large(100, 1, 100 * kPageBytes);
      model.free_all();
      model.heap().tick();
      EXPECT_FALSE(model.heap().hints().is_behind());
      fake::advance_ms(1500);
      int ticks = 0;
      do {
        model.heap().tick();
        ASSERT_LE(++ticks, 100);
      } while (model.heap().hints().is_behind());
      EXPECT_GT(ticks, 1) << "one call would pay for all";
      EXPECT_LE(dirty(), PurgePolicy::kFloor);
      // The clock's next tick has nothing left to do.
      pass(2 * kTickMs);
      EXPECT_FALSE(model.heap().hints().is_behind());
      model.check();
    }
  }
}

// Runs of a length stay between the freed runs of that length, so each longer length needs fresh
// pages. No time passes, so nothing else gives pages back.
TEST_F(PurgeTest, WhileItTakesFreshPagesTheHeapHoldsAtMostHalfAsMuchAgainAsItUsed) {
  constexpr size_t kUse = 20'000;
  std::vector<uintptr_t> survivors, before;
  size_t most_idle = 0;
  for (size_t length = 8; length <= kPagesPerSlab; length += length / 4) {
    std::vector<uintptr_t> runs;
    const size_t others = model.used();
    while (model.used() - others < kUse - kUse / 4) {
      runs.push_back(model.large(length, 1, length * kPageBytes));
      const PageStats s = model.heap().stats();
      const Pages held = s.used + s.dirty;
      ASSERT_LE(held, s.peak_used + Pages(s.peak_used.count / 2) + PurgePolicy::kFloor +
                          PurgePolicy::kBatch + Pages(length))
          << length;
      most_idle = std::max(most_idle, s.dirty.count);
    }
    for (const uintptr_t run : before) model.free(run);
    before.swap(survivors);
    survivors.clear();
    for (size_t i = 0; i < runs.size(); ++i) {
      if (i % 8 == 0)
        survivors.push_back(runs[i]);
      else
        model.free(runs[i]);
    }
  }
  EXPECT_GT(most_idle, kUse / 2) << "the bound was never met, so nothing was checked";
  EXPECT_GT(purged(), 0u);
  model.check();
}

TEST_F(PurgeTest, RecordsOfWhatIsFreeGoWithinSecondsABoundedNumberATick) {
  // Pages of records: at most 8 MiB in a tick.
  constexpr size_t kSpans = 200'000, kMost = 8 << 20;
  const auto metadata = [&] { return model.heap().stats().metadata_bytes; };
  for (size_t i = 0; i < kSpans; ++i) model.span(1, 1, kPageBytes);
  const size_t full = metadata();
  ASSERT_GT(full, kSpans * sizeof(Span));
  model.free_all();
  size_t before = metadata();
  EXPECT_GT(before, kSpans * sizeof(Span) / 2);
  for (uint64_t ms = 0; ms < 10'000; ms += kTickMs) {
    pass(kTickMs);
    const size_t now = metadata();
    ASSERT_GE(now + kMost, before) << "after " << ms << " ms";
    before = now;
  }
  EXPECT_LT(before, full - kSpans * sizeof(Span) + (size_t{2} << 20));
  model.check();
}

TEST_F(PurgeTest, MapsOfWhatIsFreeGoWithinSecondsAndComeAgain) {
  // Some regions, in each of which one run stays live.
  constexpr size_t kPages = (size_t{3} << 30) / kPageBytes, kBlocks = kPages / kPagesPerSlab;
  constexpr size_t kMapBytes =
      kPagesPerSlab * (sizeof Region::page_class[0] + sizeof Region::page_span[0]);
  const auto metadata = [&] { return model.heap().stats().metadata_bytes; };
  for (int round = 0; round < 2; ++round) {
    const uintptr_t kept = model.large(100, 1, 100 * kPageBytes);
    std::vector<uintptr_t> runs;
    while (model.used() < kPages) runs.push_back(model.large(2048, 1, 2048 * kPageBytes));
    model.check();
    const size_t full = metadata();
    for (const uintptr_t run : runs) model.free(run);
    pass(10'000);
    EXPECT_LE(metadata() + kBlocks * kMapBytes * 9 / 10, full);
    const uint64_t calls = fake::calls(fake::Call::kPurgeMetadata);
    static_cast<void>(model.heap().purge_records());
    static_cast<void>(model.heap().purge_records());
    EXPECT_LE(fake::calls(fake::Call::kPurgeMetadata), calls + 8)
        << "what went is not asked to go again";
    model.check();
    model.free(kept);
  }
  model.check();
}

TEST_F(PurgeTest, MapsStayWhereTheSystemRefusesToTakeThem) {
  while (model.used() < 200 * kPagesPerSlab) model.large(2048, 1, 2048 * kPageBytes);
  fake::fail(fake::Call::kPurgeMetadata);
  model.free_all();
  static_cast<void>(model.heap().purge_all());
  const size_t before = model.heap().stats().metadata_bytes;
  EXPECT_EQ(model.heap().purge_records(), 0u);
  EXPECT_EQ(model.heap().stats().metadata_bytes, before);
  fake::clear_failures();
  EXPECT_GT(model.heap().purge_records(), 190u * 2560);
  model.check();
}

TEST_F(PurgeTest, AFewLargeFreesAreEnoughToWantTicks) {
  for (int i = 0; i < 20; ++i) model.large(kMaxRun.count, 1, kMaxRun.bytes());
  pass(1000);
  model.free_all();
  EXPECT_TRUE(model.heap().hints().wants_ticks()) << "nobody would ever come to purge 640 MiB";
  pass(10'000);
  EXPECT_LE(dirty(), PurgePolicy::kFloor);
}

TEST_F(PurgeTest, ASmallProgramNeverPays) {
  Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  for (int i = 0; i < 20'000; ++i) {
    if (model.used() < 100) {
      model.large(random.between(1, 20), 1, 1);
    } else {
      model.free(model.random_run(random));
    }
    fake::advance_ms(random.below(50));
  }
  model.free_all();
  pass(10'000);
  EXPECT_EQ(purged(), 0u);
  EXPECT_FALSE(model.heap().hints().wants_ticks());
}

TEST_F(PurgeTest, RoundsThatComeBackWithinTheHoldKeepAlmostAllTheirMemory) {
  // 200 MiB are used and freed, round after round, with a pause of one second between.
  const uint64_t start = 3;
  uint64_t before = 0, fresh = 0;
  for (uint64_t round = 0; round < 30; ++round) {
    if (round == start) {
      before = purged();
      fresh = model.heap().stats().fresh_pages;
    }
    while (model.used() < 51'200) model.large(512, 1, kSlabBytes);
    pass(500);
    model.free_all();
    pass(500);
  }
  const uint64_t seconds = 30 - start;
  EXPECT_LE(purged() - before, kCap + kPagesPerSlab + seconds * kRate);
  EXPECT_LE(model.heap().stats().fresh_pages - fresh, kCap + kPagesPerSlab + seconds * kRate);
  EXPECT_LE(fake::resident_bytes(), 51'200 * kPageBytes + PurgePolicy::kFloor.bytes());
}

TEST_F(PurgeTest, YoungPagesGoNoFasterThanTheirBudget) {
  EXPECT_GE(churn(1), kChurnMs * kRate / 2000) << "what may go should go";
  model.check();
}

TEST_F(PurgeTest, TheBudgetGrowsWithTheThreadsThatRun) {
  EXPECT_GE(churn(3), 2 * kChurnMs * kRate / 1000);
}

TEST_F(PurgeTest, OldBlocksGoBeforeYoungOnes) {
  std::vector<uintptr_t> old_runs, young_runs;
  for (int i = 0; i < 30; ++i) old_runs.push_back(model.large(kPagesPerSlab, 1, kSlabBytes));
  for (int i = 0; i < 30; ++i) young_runs.push_back(model.large(kPagesPerSlab, 1, kSlabBytes));
  const uintptr_t keep = model.large(1, 1, 1);
  model.heap().tick();
  for (const uintptr_t run : old_runs) model.free(run);
  fake::advance_ms(2 * PurgePolicy::kHoldMs);
  model.heap().tick();  // bounded: some of the old ones were purged
  for (const uintptr_t run : young_runs) model.free(run);
  const auto left = [](const std::vector<uintptr_t>& runs) {
    size_t bytes = 0;
    for (const uintptr_t run : runs) bytes += fake::written_bytes(run, kSlabBytes);
    return bytes;
  };
  // The latest peak is kept, and the floor, so only pages of the old runs may go.
  int ticks = 0;
  for (; left(old_runs) > PurgePolicy::kFloor.bytes() && ticks < 40; ++ticks) {
    fake::advance_ms(1);
    model.heap().tick();
    ASSERT_TRUE(left(old_runs) == 0 || left(young_runs) == 30 * kSlabBytes) << "tick " << ticks;
  }
  EXPECT_LT(ticks, 40);
  EXPECT_GE(left(young_runs), 30 * kSlabBytes - (Pages(kCap).bytes() + kSlabBytes));
  model.free(keep);
}

TEST_F(PurgeTest, ABlockThatIsStoppedHalfWayStaysTheNextOne) {
  // Slabs of many short dirty runs: one tick's bound ends inside one.
  std::vector<uintptr_t> holes;
  for (int i = 0; i < 256 * 60; ++i) {
    const uintptr_t hole = model.large(1, 1, kPageBytes);
    model.large(1, 1, kPageBytes);
    holes.push_back(hole);
  }
  std::sort(holes.begin(), holes.end());
  model.heap().tick();
  for (const uintptr_t hole : holes) model.free(hole);
  fake::advance_ms(2 * PurgePolicy::kHoldMs);
  while (dirty() > PurgePolicy::kFloor) {
    const Pages before = dirty();
    fake::advance_ms(1);
    model.heap().tick();
    ASSERT_LT(dirty(), before);
    // Purging goes in order of age, so at most one slab is half done.
    size_t partly = 0;
    for (size_t i = 0; i < holes.size();) {
      size_t left = 0, count = 0;
      const uintptr_t slab = holes[i] / kSlabBytes;
      for (; i < holes.size() && holes[i] / kSlabBytes == slab; ++i, ++count) {
        left += fake::written_bytes(holes[i], kPageBytes) != 0;
      }
      partly += left != 0 && left != count;
    }
    ASSERT_LE(partly, 1u);
  }
}

TEST_F(PurgeTest, OneTickIsBounded) {
  for (int i = 0; i < 2000; ++i) model.large(kPagesPerSlab, 1, kSlabBytes);  // 4 GiB
  model.free_all();
  fake::advance_ms(2 * PurgePolicy::kHoldMs);
  const size_t excess = dirty().count;
  const uint64_t before = purged();
  model.heap().tick();
  model.heap().tick();
  EXPECT_GT(purged(), before);
  EXPECT_LE(purged() - before, 2 * (2048 + excess / 64 + kPagesPerSlab));
}

TEST_F(PurgeTest, APauseOfDaysDoesNotConfuseTheClock) {
  for (const uint64_t days : {1, 20, 30, 50, 100}) {
    for (int i = 0; i < 50; ++i) model.large(kPagesPerSlab, 1, kSlabBytes);
    model.free_all();
    fake::advance_ms(days * 24 * 3600 * 1000);
    pass(10'000);
    EXPECT_LT(dirty(), PurgePolicy::kFloor + PurgePolicy::kBatch) << days << " days";
    model.check();
  }
}

TEST_F(PurgeTest, AFreeAfterALongSilenceIsYoung) {
  for (int i = 0; i < 200; ++i) model.large(kPagesPerSlab, 1, kSlabBytes);
  pass(100);
  fake::advance_ms(60'000);
  for (int i = 0; i < 30; ++i) model.free(model.runs().begin()->first);  // without a tick
  const uint64_t before = purged();
  model.heap().tick();
  EXPECT_LE(purged() - before, kCap + kPagesPerSlab) << "as if it had been idle for a minute";
}

TEST_F(PurgeTest, HoursOfMixedWorkKeepTheInvariantsAndTheBounds) {
  Random random = test::seeded(5);
  LOAM_TRACE_SEED(random);
  size_t target = 0;
  for (int minute = 0; minute < 240; ++minute) {
    target = random.chance(30) ? 0 : random.magnitude(200'000);
    for (int i = 0; i < 60; ++i) {
      const unsigned pages = random.magnitude(4000);
      if (model.used() + pages <= target) {
        model.large(pages, 1, pages * kPageBytes);
      } else if (!model.runs().empty()) {
        model.free(model.random_run(random));
      }
      fake::advance_ms(random.below(1000));
      if (model.heap().hints().wants_ticks()) model.heap().tick();
    }
    model.check();
    pass(10'000);  // quiet
    ASSERT_LE(dirty(), PurgePolicy::kFloor) << "minute " << minute;
    ASSERT_FALSE(HasFailure()) << "minute " << minute;
  }
}

}  // namespace
}  // namespace loam
