// The place of every byte: the equations of counters/snapshot.h, exact while no other thread
// allocates.
#include "counters/snapshot.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "heap/blocks.h"
#include "heap/equations.h"
#include "heap/heap.h"
#include "this_process.h"

namespace loam {
namespace {

using test::Blocks;
using test::expect_equations;
using test::Random;
using test::resident_bytes;
using test::snapshot;

// A sanitizer's shadow moves with the program's memory, and hides the effect of the heap.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kResidentIsOurs = false;
#else
constexpr bool kResidentIsOurs = true;
#endif

TEST(SnapshotTest, ItIsExactWhenNobodyElseAllocates) {
  Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  Blocks blocks;
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < 300; ++i) {
      if (blocks.empty() || random.chance(round < 40 ? 60 : 30)) {
        const size_t bytes = random.chance(95)
                                 ? random.magnitude(20'000)
                                 : random.magnitude(random.chance(90) ? 1 << 20 : 1 << 26);
        blocks.add(heap::allocate(bytes), bytes);
      } else {
        blocks.free(blocks.random(random));
      }
    }
    size_t small = 0, large = 0, huge = 0, huge_blocks = 0;
    for (void* block : blocks.all()) {
      const size_t usable = heap::usable_size(block);
      if (class_at(block) != 0) {
        small += usable;
      } else if (span_at(reinterpret_cast<uintptr_t>(block)) != nullptr) {
        large += usable;
      } else {
        huge += usable;
        ++huge_blocks;
      }
    }
    const auto s = snapshot();
    expect_equations(*s);
    ASSERT_EQ(s->live_small_bytes, small) << "round " << round;
    ASSERT_EQ(s->live_large_bytes, large) << "round " << round;
    ASSERT_EQ(s->live_huge_bytes, huge) << "round " << round;
    ASSERT_EQ(s->huge_blocks, huge_blocks);
    ASSERT_EQ(s->live_bytes(), small + large + huge);
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
}

TEST(SnapshotTest, ItStaysSaneWhileOthersAllocate) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> workers;
  for (uint64_t t = 0; t < 3; ++t) {
    workers.emplace_back([&, t] {
      Random random = test::seeded(t);
      while (!stop) {
        Blocks blocks;
        for (int i = 0; i < 400; ++i) {
          const unsigned bytes = random.magnitude(random.chance(95) ? 2000 : 200'000);
          blocks.add(heap::allocate(bytes), bytes);
          if (random.chance(50)) blocks.free(blocks.random(random));
        }
      }
    });
  }
  const size_t sane = size_t{1} << 30;
  for (int i = 0; i < 200; ++i) {
    const auto s = snapshot();
    EXPECT_LE(s->live_bytes(), sane);
    EXPECT_LE(s->cached_bytes, sane);
    EXPECT_LE(s->used_bytes + s->dirty_bytes, s->committed_bytes);
    EXPECT_LE(s->threads, 5u);
  }
  stop = true;
  for (std::thread& worker : workers) worker.join();
  expect_equations(*snapshot());
  EXPECT_TRUE(heap::is_valid());
}

TEST(SnapshotTest, BlocksOnTheirWayHomeCountAsCached) {
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(heap::allocate(1000));
  const unsigned c = class_for(1000);
  const size_t live = snapshot()->classes[c].live;
  default_small_heap.lock_all();
  std::thread([&] {
    for (void* block : blocks) default_small_heap.give(c, &block, 1, SmallHeap::Wait::kNo);
  }).join();
  default_small_heap.unlock_all();
  EXPECT_GT(default_small_heap.stats(c).queued, 0u);
  EXPECT_EQ(snapshot()->classes[c].live, live - 20);
  expect_equations(*snapshot());
}

TEST(CompactTest, AfterTheLastFreeNothingIsUsedAndNothingResident) {
  Random random = test::seeded(2);
  LOAM_TRACE_SEED(random);
  const size_t before = resident_bytes();
  std::vector<std::thread> workers;  // the ends of the threads return their caches
  for (uint64_t t = 0; t < 2; ++t) {
    workers.emplace_back([t] {
      Random mine = test::seeded(t + 10);
      Blocks blocks;
      for (int i = 0; i < 20'000; ++i) {
        const size_t bytes = mine.magnitude(4000);
        blocks.add(heap::allocate(bytes), bytes);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  const size_t records = snapshot()->metadata_bytes;
  const heap::CompactResult result = heap::compact();
  const auto s = snapshot();
  // The purge may already have taken some of it.
  EXPECT_GE(s->purged_bytes + records - s->metadata_bytes, result.released_bytes);
  EXPECT_GT(s->purged_bytes, size_t{8} << 20);
  expect_equations(*s);
  EXPECT_EQ(s->used_bytes, 0u);
  EXPECT_EQ(s->dirty_bytes, 0u);
  EXPECT_EQ(s->live_bytes(), 0u);
  EXPECT_EQ(s->cached_bytes, 0u);
  // The test's own containers and the tables of the heap remain.
  if (kResidentIsOurs) {
    EXPECT_LE(resident_bytes(), before + (size_t{12} << 20));
  }
  EXPECT_EQ(heap::compact().released_bytes, 0u) << "there was nothing left";
  EXPECT_TRUE(heap::is_valid());
}

TEST(CompactTest, ASparseHeapGivesUpThePagesBetweenItsBlocks) {
  Random random = test::seeded(3);
  LOAM_TRACE_SEED(random);
  Blocks blocks;
  for (int i = 0; i < 30'000; ++i) {
    const size_t bytes = 1000 + random.below(3000);
    blocks.add(heap::allocate(bytes), bytes);
  }
  const size_t full = resident_bytes();
  while (blocks.size() > 1500) blocks.free(blocks.random(random));
  const heap::CompactResult result = heap::compact();
  const auto s = snapshot();
  expect_equations(*s);
  EXPECT_GT(s->unbacked_bytes, size_t{4} << 20) << "pages inside live spans";
  // Most of these went while use fell.
  EXPECT_LE(result.released_bytes, s->unbacked_bytes + (size_t{12} << 20));
  if (kResidentIsOurs) {
    EXPECT_LT(resident_bytes() + (size_t{50} << 20), full);
  }
  for (void* block : blocks.all()) blocks.check(block);
  // The holes are used again, and purged memory is counted correctly.
  for (int i = 0; i < 30'000; ++i) {
    const size_t bytes = 1000 + random.below(3000);
    blocks.add(heap::allocate(bytes), bytes);
  }
  EXPECT_TRUE(heap::is_valid());
  blocks.free_all();
  heap::compact();
  EXPECT_EQ(snapshot()->used_bytes, 0u);
  EXPECT_EQ(snapshot()->unbacked_bytes, 0u);
  EXPECT_TRUE(heap::is_valid());
}

}  // namespace
}  // namespace loam
