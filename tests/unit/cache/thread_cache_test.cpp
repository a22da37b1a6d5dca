// A thread's cache: its properties, when it works, and which mistakes it finds.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <set>
#include <vector>

#include "cache/thread_cache_fixture.h"
#include "fake_system/fake.h"  // which system the test is built with
#include "map/metadata.h"
#include "random.h"

namespace loam {
namespace {

using namespace test;  // contents of the fixture

TEST_F(ThreadCacheTest, AThreadGetsItsCacheWithItsFirstBlock) {
  const size_t threads = cache_registry.totals().threads;
  in_thread([&] {
    EXPECT_EQ(current_cache->state(), ThreadCache::State::kUnused);
    EXPECT_EQ(current_cache->pop(1), nullptr);
    void* block = allocate(1);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(current_cache->state(), ThreadCache::State::kLive);
    EXPECT_EQ(cache_registry.totals().threads, threads + 1);
    release(block);
  });
  EXPECT_EQ(cache_registry.totals().threads, threads);
}

TEST_F(ThreadCacheTest, AThreadThatOnlyFreesGivesAllThatAnotherTakes) {
  const unsigned c = class_for(64);
  in_thread([&] {
    std::vector<void*> blocks;
    for (int i = 0; i < 3000; ++i) blocks.push_back(allocate(c));
    in_thread([&] {
      for (void* block : blocks) release(block);
      const unsigned most = magazine_policy::one_way_capacity(64);
      // First a full magazine, and then as many blocks again each time, in whole batches.
      const unsigned each = most - most % SmallHeap::max_transfer(c);
      EXPECT_LE(current_cache->flushes(), 1 + (3000 - most + each - 1) / each);
      EXPECT_GT(default_small_heap.stats(c).queued, 2000u);
    });
  });
}

TEST_F(ThreadCacheTest, AThreadThatOnlyFreesGetsACacheToo) {
  std::vector<void*> blocks;
  in_thread([&] {
    for (int i = 0; i < 10; ++i) blocks.push_back(allocate(4));
  });
  in_thread([&] {
    for (void* block : blocks) release(block);
    EXPECT_EQ(current_cache->state(), ThreadCache::State::kLive);
    EXPECT_GT(current_cache->held_blocks(4), 0u);
  });
}

TEST_F(ThreadCacheTest, TheLastBlockFreedIsTheNextOneHandedOut) {
  in_thread([] {
    std::vector<void*> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(allocate(5));
    for (void* block : blocks) release(block);
    for (size_t i = blocks.size(); i-- > 0;) EXPECT_EQ(allocate(5), blocks[i]);
    for (void* block : blocks) release(block);
  });
}

TEST_F(ThreadCacheTest, BlocksAreDistinctAndOfTheirClass) {
  for (const unsigned c : {1u, 7u, 20u, 40u, 60u, 72u}) {
    in_thread([c] {
      std::set<void*> live;
      for (int i = 0; i < 3000; ++i) {
        void* block = allocate(c);
        ASSERT_EQ(class_at(block), c);
        ASSERT_TRUE(live.insert(block).second);
      }
      for (void* block : live) release(block);
    });
  }
}

TEST_F(ThreadCacheTest, AClassThatIsUsedOnceStrandsNextToNothing) {
  in_thread([] {
    for (unsigned c = 1; c < kSizeClassCount; ++c) {
      void* block = allocate(c);
      // Two blocks, or a cache line.
      const size_t most = kSizeClasses[c].bytes < kCacheLine ? 4 : 2;
      EXPECT_LT(current_cache->held_blocks(c), most);
      release(block);
      EXPECT_LE(current_cache->held_blocks(c), most);
    }
  });
}

// The cache lines that a block touches.
std::set<uintptr_t> lines_of(const void* block, unsigned c) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(block);
  std::set<uintptr_t> lines;
  for (uintptr_t line = begin / kCacheLine;
       line <= (begin + kSizeClasses[c].bytes - 1) / kCacheLine; ++line)
    lines.insert(line);
  return lines;
}

TEST_F(ThreadCacheTest, FreshBlocksOfTwoThreadsShareNoCacheLine) {
  for (unsigned c = 1; kSizeClasses[c].bytes < kCacheLine; ++c) {
    std::barrier sync(2);
    std::vector<void*> blocks[2];
    const auto take_turns = [&](unsigned me) {
      for (unsigned turn = 0; turn < 40; ++turn) {
        if (turn % 2 == me) blocks[me].push_back(allocate(c));
        sync.arrive_and_wait();
      }
      for (void* block : blocks[me]) release(block);
    };
    std::thread other(take_turns, 1u);
    in_thread([&] { take_turns(0); });
    other.join();
    std::set<uintptr_t> lines;
    for (void* block : blocks[0]) lines.merge(lines_of(block, c));
    for (void* block : blocks[1]) {
      for (const uintptr_t line : lines_of(block, c))
        EXPECT_EQ(lines.count(line), 0u) << kSizeClasses[c].bytes;
    }
  }
}

TEST_F(ThreadCacheTest, WhatAnotherThreadAllocatedIsHandedOutLast) {
  for (unsigned c = 1; kSizeClasses[c].bytes < kCacheLine; ++c) {
    std::vector<void*> gifts;
    in_thread([&] {
      for (int i = 0; i < 6; ++i) gifts.push_back(allocate(c));
    });
    in_thread([&] {
      for (void* gift : gifts) {
        release(gift);
        void* own = allocate(c);
        EXPECT_EQ(std::count(gifts.begin(), gifts.end(), own), 0) << kSizeClasses[c].bytes;
        release(own);
        EXPECT_TRUE(current_cache->holds(c, gift));
        ASSERT_TRUE(current_cache->is_valid());
      }
      std::set<void*> all;
      while (current_cache->held_blocks(c) != 0) EXPECT_TRUE(all.insert(allocate(c)).second);
      for (void* gift : gifts) EXPECT_EQ(all.count(gift), 1u);
      for (void* block : all) release(block);
    });
  }
}

TEST_F(ThreadCacheTest, AThreadThatOnlyFreesWhatOthersAllocatedIsSoonAsFastAsAnother) {
  std::vector<void*> blocks;
  in_thread([&] {
    for (int i = 0; i < 20'000; ++i) blocks.push_back(allocate(1));
  });
  in_thread([&] {
    size_t slow = 0;
    for (void* block : blocks) {
      if (current_cache->push(1, block)) continue;
      ++slow;
      current_cache->free_slow(1, block);
    }
    EXPECT_LE(slow, blocks.size() / 100);
  });
}

TEST_F(ThreadCacheTest, TheRegistryCountsWhatCachesHold) {
  in_thread([] {
    for (const unsigned c : {1u, 30u}) {
      std::vector<void*> blocks;
      for (int i = 0; i < 50; ++i) blocks.push_back(allocate(c));
      for (void* block : blocks) release(block);
      EXPECT_EQ(cache_registry.held_blocks(c), current_cache->held_blocks(c));
      EXPECT_EQ(cache_registry.held_blocks(c), slots_out(c)) << "all that is out is cached";
    }
    EXPECT_EQ(cache_registry.totals().held_bytes, current_cache->held_bytes());
    cache_registry.flush_current();
    EXPECT_EQ(current_cache->held_bytes(), 0u);
    EXPECT_TRUE(current_cache->is_valid());
    void* block = allocate(1);
    EXPECT_NE(block, nullptr) << "a flushed cache goes on";
    cache_registry.flush_current();
    EXPECT_EQ(slots_out(1), 1u);
    EXPECT_EQ(slots_out(30), 0u);
    release(block);
  });
}

TEST_F(ThreadCacheTest, AThreadThatOnlyHitsItsCacheStillTicksThePageHeap) {
  in_thread([] {
    // 64 MiB are freed. Then the thread only runs a loop that one magazine serves.
    std::vector<Span*> runs;
    for (int i = 0; i < 32; ++i) {
      runs.push_back(page_heap.allocate_large(Pages(512), Pages(1), 1, 0).span);
    }
    for (Span* run : runs) page_heap.free(run);
    ASSERT_TRUE(page_heap.hints().wants_ticks());
    fake::advance_ms(100);  // whatever the thread did before, it is not busy now
    void* block = allocate(3);
    release(block);
    for (int ms = 0; ms < 10'000; ++ms) {
      fake::advance_ms(1);
      for (int i = 0; i < 2; ++i) {
        block = allocate(3);
        release(block);
      }
      ASSERT_TRUE(current_cache->is_valid());
    }
    EXPECT_LE(page_heap.stats().dirty.count, PurgePolicy::kFloor.count);
    EXPECT_FALSE(page_heap.hints().wants_ticks());
    // No magazine is armed any more, so the loop makes no slow call.
    const BinStats before = default_small_heap.stats(3);
    ASSERT_NE(block = current_cache->pop(3), nullptr);
    EXPECT_TRUE(current_cache->push(3, block));
    EXPECT_EQ(default_small_heap.stats(3).taken, before.taken);
  });
}

// 100 MiB in ticks of at least 8 MiB, all of them at the same reading of the clock.
TEST_F(ThreadCacheTest, AHundredCallsAfterASilenceGiveBackWhatAClockWouldHave) {
  in_thread([] {
    std::vector<Span*> runs;
    for (int i = 0; i < 50; ++i)
      runs.push_back(page_heap.allocate_large(Pages(512), Pages(1), 1, 0).span);
    for (Span* run : runs) page_heap.free(run);
    page_heap.tick();
    ASSERT_TRUE(page_heap.hints().wants_ticks());
    void* block = allocate(3);
    release(block);
    fake::advance_ms(1500);
    // The first slow call of any class sees the clock.
    release(allocate(60));
    for (int i = 0; i < 50; ++i) {
      block = allocate(3);
      release(block);
    }
    EXPECT_LE(page_heap.stats().dirty.count, PurgePolicy::kFloor.count);
  });
}

TEST_F(ThreadCacheTest, FreesThatHitAreCountedInEveryOrder) {
  in_thread([] {
    for (const size_t stride :
         {1u, 2u, 5u, 10u}) {  // of 11 blocks: in order, two mixed ones, in reverse
      std::vector<void*> batch(11);
      const auto round = [&] {
        for (void*& block : batch) block = allocate(3);
        for (size_t i = 0; i < batch.size(); ++i)
          release(batch[(i * stride + stride - 1) % batch.size()]);
      };
      for (int i = 0; i < 8; ++i) round();
      const uint64_t pushed = current_cache->pushed(), refills = current_cache->refills();
      for (int i = 0; i < 1000; ++i) round();
      EXPECT_EQ(current_cache->refills(), refills);
      EXPECT_EQ(current_cache->pushed() - pushed, 1000 * batch.size()) << "a stride of " << stride;
    }
  });
}

// A thread with a few blocks never misses its cache, whatever it frees next.
TEST_F(ThreadCacheTest, AThreadThatOnlyHitsTakesASlowCallNowAndThen) {
  in_thread([] {
    for (const size_t count : {1u, 3u, 10u}) {
      std::vector<void*> blocks;
      for (size_t i = 0; i < count; ++i) blocks.push_back(allocate(3));
      for (void* block : blocks) release(block);
      Random random = seeded(1);
      LOAM_TRACE_SEED(random);
      for (void*& block : blocks) ASSERT_NE(block = current_cache->pop(3), nullptr);
      unsigned refused = 0;
      for (int i = 0; i < 10000; ++i) {
        void*& block = blocks[random.below(count)];
        if (!current_cache->push(3, block)) {
          ++refused;
          current_cache->free_slow(3, block);
        }
        ASSERT_NE(block = current_cache->pop(3), nullptr);
      }
      EXPECT_GE(refused, 10u) << count << " blocks";
      EXPECT_LE(refused, 100u) << count << " blocks";
      for (void* block : blocks) release(block);
    }
  });
}

TEST_F(ThreadCacheTest, AnArmedMagazineStillHandsOutWhatItHolds) {
  in_thread([] {
    page_heap.keep_falls();
    Span* run = page_heap.allocate_large(Pages(4096), Pages(1), 1, 0).span;
    std::vector<void*> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(allocate(3));
    for (void* block : blocks) release(block);
    page_heap.free(run);
    page_heap.tick();
    ASSERT_TRUE(page_heap.hints().wants_ticks());
    fake::advance_ms(100);
    const uint64_t taken = default_small_heap.stats(3).taken;
    // A slow call of another class arms all magazines; this class's content must not be lost.
    release(allocate(60));
    for (size_t i = blocks.size(); i-- > 0;) EXPECT_EQ(allocate(3), blocks[i]);
    EXPECT_EQ(default_small_heap.stats(3).taken, taken);
    for (void* block : blocks) release(block);
    EXPECT_GE(current_cache->held_blocks(3), 6u);
  });
}

TEST_F(ThreadCacheTest, ABusyThreadIsNotSlowedDownByTicks) {
  in_thread([] {
    page_heap.keep_falls();
    Span* run = page_heap.allocate_large(Pages(8192), Pages(1), 1, 0).span;
    page_heap.free(run);
    page_heap.tick();
    ASSERT_TRUE(page_heap.hints().wants_ticks());
    void* block = allocate(3);
    release(block);
    // The clock stands still: after a bounded number of slow calls the fast path is fast again.
    int slow = 0;
    for (int i = 0; i < 1000; ++i) {
      block = current_cache->pop(3);
      if (block == nullptr) {
        ++slow;
        block = current_cache->allocate_slow(3);
      }
      if (!current_cache->push(3, block)) {
        ++slow;
        current_cache->free_slow(3, block);
      }
    }
    EXPECT_LE(slow, 300);
  });
}

TEST_F(ThreadCacheTest, WithoutMemoryForItsSlotsAThreadGoesToTheBins) {
  in_thread([] {
    void* one = allocate(2);  // the page heap has its tables now
    fake::fail(fake::Call::kReserveMetadata);
    fake::fail(fake::Call::kCommitMetadata);
    // Uses up the rest of the arena. Then every class without slots is served one by one.
    for (size_t bytes = MetadataArena::kLargestPiece; bytes >= 64; bytes /= 2) {
      while (metadata.allocate(bytes) != nullptr) {
      }
    }
    std::vector<void*> blocks;
    for (unsigned c = 3; c < kSizeClassCount; ++c) {
      for (int i = 0; i < 3; ++i) {
        blocks.push_back(allocate(c));
        ASSERT_NE(blocks.back(), nullptr);
        ASSERT_EQ(current_cache->held_blocks(c), 0u);
      }
    }
    for (void* block : blocks) release(block);
    EXPECT_TRUE(current_cache->is_valid());
    cache_registry
        .flush_current();  // a collection may have taken an idle class's slots for another
    for (unsigned c = 3; c < kSizeClassCount; ++c) EXPECT_EQ(slots_out(c), 0u);
    release(one);
    fake::clear_failures();
  });
}

TEST_F(ThreadCacheTest, WithoutMemoryForACacheAThreadGoesToTheBins) {
  std::vector<void*> blocks;
  in_thread([&] {
    void* held = allocate(2);  // while this thread lives, the next one cannot adopt its cache
    fake::fail(fake::Call::kReserveMetadata);
    fake::fail(fake::Call::kCommitMetadata);
    while (metadata.allocate(64) != nullptr) {
    }
    std::thread([&] {
      void* block = allocate(2);
      EXPECT_NE(block, nullptr);
      if (current_cache->state() == ThreadCache::State::kUnused) {
        release(block);
        EXPECT_EQ(slots_out(2), 1u + current_cache->held_blocks(2) + cache_registry.held_blocks(2));
      } else {
        release(block);  // a spare cache of an earlier test
      }
    }).join();
    fake::clear_failures();
    release(held);
  });
}

TEST_F(ThreadCacheTest, ARefusalIsANullAndTheCacheStaysValid) {
  in_thread([] {
    fake::fail(fake::Call::kReserve);
    fake::fail(fake::Call::kCommit);
    std::vector<void*> blocks;
    while (void* block = allocate(72)) blocks.push_back(block);
    EXPECT_TRUE(current_cache->is_valid());
    EXPECT_EQ(allocate(72), nullptr);
    for (void* block : blocks) release(block);
    fake::clear_failures();
    void* block = allocate(72);
    EXPECT_NE(block, nullptr);
    release(block);
  });
}

TEST_F(ThreadCacheTest, RandomTrafficKeepsTheCacheValid) {
  in_thread([] {
    test::Random random = test::seeded(1);
    LOAM_TRACE_SEED(random);
    std::vector<void*> live;
    for (int step = 0; step < 60'000; ++step) {
      if (live.empty() || random.chance(step / 6000 % 2 == 0 ? 60 : 40)) {
        live.push_back(allocate(random.magnitude(72)));
      } else {
        std::swap(live.back(), live[random.below(live.size())]);
        release(live.back());
        live.pop_back();
      }
      if (step % 100 == 0) {
        fake::advance_ms(random.below(20));
        ASSERT_TRUE(current_cache->is_valid()) << step;
      }
    }
    for (void* block : live) release(block);
  });
}

// ---- misuse that the cache itself finds ---------------------------------------------------------

TEST_F(ThreadCacheTest, AFreeOfABlockThatIsStillCachedIsReportedAndDropped) {
  in_thread([] {
    set_corruption_policy(CorruptionPolicy::kReport);
    for (const unsigned c : {1u, 20u, 72u}) {
      void* block = allocate(c);
      release(block);
      const size_t held = current_cache->held_blocks(c);
      EXPECT_TRUE(current_cache->freed_recently(c, block));
      fake::take_errors();
      release(block);
      EXPECT_NE(fake::take_errors().find("double free"), std::string::npos);
      EXPECT_EQ(current_cache->held_blocks(c), held);
      EXPECT_EQ(allocate(c), block);
      EXPECT_FALSE(current_cache->freed_recently(c, block));
      void* other = allocate(c);
      EXPECT_NE(other, block) << "handed out twice";
      release(other);
      release(block);
      EXPECT_EQ(fake::take_errors(), "");
    }
  });
}

TEST_F(ThreadCacheTest, ADoubleFreeIsFoundWhereverTheBlockStandsInTheMagazine) {
  in_thread([] {
    set_corruption_policy(CorruptionPolicy::kReport);
    constexpr size_t kBlocks = 6;
    for (size_t twice = 0; twice < kBlocks; ++twice) {
      void* blocks[kBlocks];
      for (void*& block : blocks) block = allocate(20);
      for (void* block : blocks) release(block);
      const size_t held = current_cache->held_blocks(20);
      fake::take_errors();
      EXPECT_FALSE(current_cache->push(20, blocks[twice])) << twice;
      current_cache->free_slow(20, blocks[twice]);
      EXPECT_NE(fake::take_errors().find("double free"), std::string::npos) << twice;
      EXPECT_EQ(current_cache->held_blocks(20), held);
    }
  });
}

TEST_F(ThreadCacheTest, ADoubleFreeOfAnothersBlockIsFound) {
  std::vector<void*> gifts;
  in_thread([&] {
    for (int i = 0; i < 6; ++i) gifts.push_back(allocate(1));
  });
  in_thread([&] {
    set_corruption_policy(CorruptionPolicy::kReport);
    for (void* gift : gifts) release(gift);
    const size_t held = current_cache->held_blocks(1);
    fake::take_errors();
    for (void* gift : gifts) {
      release(gift);
      EXPECT_NE(fake::take_errors().find("double free"), std::string::npos);
      EXPECT_EQ(current_cache->held_blocks(1), held);
    }
  });
}

TEST_F(ThreadCacheTest, WithFullChecksEveryDoubleFreeIsFoundAtOnce) {
  set_full_free_checks(true);
  set_corruption_policy(CorruptionPolicy::kReport);
  in_thread([] {
    std::vector<void*> blocks;
    void* live = allocate(4);
    for (int i = 0; i < 63; ++i) blocks.push_back(allocate(4));
    for (void* block : blocks) release(block);
    fake::take_errors();
    for (void* block : blocks) {
      release(block);
      ASSERT_NE(fake::take_errors().find("double free"), std::string::npos);
    }
    release(static_cast<char*>(live) + 16);
    EXPECT_NE(fake::take_errors().find("middle of a block"), std::string::npos);
    release(live);
    EXPECT_EQ(fake::take_errors(), "");
  });
  set_full_free_checks(false);
}

TEST_F(ThreadCacheTest, FullChecksFindADoubleFreeThroughAnotherThread) {
  void* block = nullptr;
  std::atomic<int> stage{0};
  set_full_free_checks(true);
  set_corruption_policy(CorruptionPolicy::kReport);
  std::thread first([&] {
    block = allocate(6);
    release(block);
    stage = 1;
    while (stage != 2) std::this_thread::yield();
  });
  while (stage != 1) std::this_thread::yield();
  in_thread([&] {
    fake::take_errors();
    release(block);
    EXPECT_NE(fake::take_errors().find("double free"), std::string::npos);
  });
  stage = 2;
  first.join();
  set_full_free_checks(false);
}

}  // namespace
}  // namespace loam
