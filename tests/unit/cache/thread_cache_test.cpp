// A thread's magazines on the pretend system. Each test body runs in a thread of its own, because
// that is what has a cache of its own; the heap behind them is the process's, so counts are
// differences.
#include "cache/thread_cache.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cache/cache_registry.h"
#include "map/metadata.h"
#include "os/fake.h"
#include "os/fatal.h"
#include "random.h"

namespace loam {
namespace {

namespace fake = os::fake;

// What the header of thread_cache.cpp promises: at most so many bytes of blocks a class and a
// thread.
constexpr size_t kClassBytes = size_t{128} << 10;
constexpr size_t kThreadBytes = size_t{2} << 20;
// Of blocks so large that kClassBytes would be fewer.
constexpr size_t kFewSlots = 16;

void* allocate(unsigned c) {
  void* block = current_cache->pop(c);
  return block != nullptr ? block : current_cache->allocate_slow(c);
}

void release(void* block) {
  const unsigned c = static_cast<unsigned>(class_at(block));
  ASSERT_NE(c, 0u);
  if (!current_cache->push(c, block)) current_cache->free_slow(c, block);
}

size_t slots_out(unsigned c) {
  const BinStats s = default_small_heap.stats(c);
  return s.slots - s.free_slots;
}

class ThreadCacheTest : public testing::Test {
 protected:
  void TearDown() override {
    fake::clear_failures();
    set_corruption_policy(CorruptionPolicy::kAbort);
    default_small_heap.compact();
    page_heap.purge_all();
    for (unsigned c = 1; c < kSizeClassCount; ++c) EXPECT_EQ(slots_out(c), 0u) << "class " << c;
    EXPECT_EQ(page_heap.stats().used.count, 0u) << "something did not come home";
    EXPECT_TRUE(page_heap.is_valid());
  }

  static void in_thread(const std::function<void()>& body) {
    std::thread([&] {
      body();
      EXPECT_TRUE(current_cache->is_valid());
    }).join();
  }
};

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
      const unsigned most = magazine_policy::kOneWayCapacity;
      // A first magazineful, and then as many again each time, but for what fills no batch.
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
      // Two, or a cache line.
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
  for (uintptr_t line = begin / kCacheLine; line <= (begin + kSizeClasses[c].bytes - 1) / kCacheLine; ++line) lines.insert(line);
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
      for (const uintptr_t line : lines_of(block, c)) EXPECT_EQ(lines.count(line), 0u) << kSizeClasses[c].bytes;
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

TEST_F(ThreadCacheTest, ABusyClassMissesEverLessOften) {
  in_thread([] {
    std::vector<void*> blocks;
    const auto misses = [&](int n) {
      const uint64_t before = current_cache->refills();
      for (int i = 0; i < n; ++i) blocks.push_back(allocate(1));
      return current_cache->refills() - before;
    };
    const uint64_t early = misses(100);
    misses(4000);
    const uint64_t late = misses(1000);
    EXPECT_GE(early, 5u) << "it starts small";
    EXPECT_LE(late, 10u) << "and grows";
    for (void* block : blocks) release(block);
  });
}

TEST_F(ThreadCacheTest, AShortMagazineGrowsWhereItStands) {
  // A thread that lives for some hundred calls should not spend them on moving arrays of slots.
  constexpr unsigned kClass = 4;
  static constexpr size_t kBlocks = 20;  // more than any first slots hold
  in_thread([] {
    std::vector<void*> blocks{allocate(kClass)};
    const size_t used = metadata.used_bytes();
    while (blocks.size() < kBlocks) blocks.push_back(allocate(kClass));
    for (void* block : blocks) release(block);
    EXPECT_GE(current_cache->held_blocks(kClass), kBlocks);
    EXPECT_EQ(metadata.used_bytes(), used);
    for (void* block : blocks) EXPECT_TRUE(current_cache->holds(kClass, block));
  });
}

TEST_F(ThreadCacheTest, ABatchThatIsTakenAndGivenInTurnFitsItsMagazine) {
  in_thread([] {
    for (const unsigned c : {class_for(16), class_for(64), class_for(128)}) {
      const size_t blocks = std::min(ThreadCache::kMaxCapacity, unsigned(kClassBytes / kSizeClasses[c].bytes)) / 2;
      std::vector<void*> batch(blocks);
      const auto round = [&] {
        for (void*& block : batch) block = allocate(c);
        for (void* block : batch) release(block);
      };
      for (int i = 0; i < 6; ++i) round();
      const uint64_t refills = current_cache->refills(), flushes = current_cache->flushes();
      for (int i = 0; i < 4; ++i) round();
      EXPECT_EQ(current_cache->refills(), refills) << kSizeClasses[c].bytes;
      EXPECT_EQ(current_cache->flushes(), flushes) << kSizeClasses[c].bytes;
    }
  });
}

TEST_F(ThreadCacheTest, AThreadThatOnlyTakesOrOnlyGivesKeepsAShortMagazine) {
  in_thread([] {
    const unsigned c = class_for(16);
    std::vector<void*> blocks;
    for (int i = 0; i < 20'000; ++i) {
      blocks.push_back(allocate(c));
      ASSERT_LE(current_cache->held_blocks(c), 512u);
    }
    std::thread([&] {
      for (void* block : blocks) {
        release(block);
        ASSERT_LE(current_cache->held_blocks(c), 512u);
      }
    }).join();
  });
}

TEST_F(ThreadCacheTest, NoMagazineHoldsMoreThanItsShare) {
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    in_thread([c] {
      std::vector<void*> blocks;
      for (int i = 0; i < 2000; ++i) blocks.push_back(allocate(c));
      const size_t bytes = kSizeClasses[c].bytes;
      for (void* block : blocks) {
        release(block);
        ASSERT_LE(current_cache->held_blocks(c) * bytes, std::max(kClassBytes, kFewSlots * bytes)) << bytes;
      }
    });
  }
}

TEST_F(ThreadCacheTest, AThreadHoldsABoundedAmountOverAllClasses) {
  in_thread([] {
    size_t initial = 0;
    for (unsigned c = 1; c < kSizeClassCount; ++c) {
      const size_t bytes = kSizeClasses[c].bytes;
      initial += std::max<size_t>(std::min<size_t>(8, kClassBytes / bytes), 2) * bytes;
    }
    for (int round = 0; round < 6; ++round) {
      for (unsigned c = 1; c < kSizeClassCount; ++c) {
        std::vector<void*> blocks;
        for (int i = 0; i < 600; ++i) blocks.push_back(allocate(c));
        for (void* block : blocks) release(block);
        ASSERT_LE(current_cache->held_bytes(), kThreadBytes + initial);
      }
    }
  });
}

TEST_F(ThreadCacheTest, ManyClassesOfLargeBlocksInUseAreServedByMagazines) {
  in_thread([] {
    // A block of every class from 1 to 24 KiB stays; one after the other is replaced, as a table of buffers is.
    std::vector<void*> blocks;
    for (unsigned c = class_for(1024); kSizeClasses[c].bytes <= 24576; ++c) blocks.push_back(allocate(c));
    const auto replace_all = [&] {
      for (void*& block : blocks) {
        const unsigned c = static_cast<unsigned>(class_at(block));
        release(block);
        block = allocate(c);
      }
    };
    for (int round = 0; round < 10; ++round) replace_all();
    uint64_t taken = 0;
    for (unsigned c = 1; c < kSizeClassCount; ++c) taken += default_small_heap.stats(c).taken;
    for (int round = 0; round < 20; ++round) replace_all();
    for (unsigned c = 1; c < kSizeClassCount; ++c) taken -= default_small_heap.stats(c).taken;
    EXPECT_EQ(taken, 0u) << "no call should have needed a lock";
    for (void* block : blocks) release(block);
  });
}

TEST_F(ThreadCacheTest, ThreadsShareWhatTheyHoldBeyondTheirDue) {
  // Each wants its 2 MiB; beyond 512 KiB all of them together have 8 MiB (thread_cache.h: kProcessBytes).
  constexpr unsigned kThreads = 16;
  std::atomic<unsigned> filled{0};
  std::atomic<size_t> held{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (unsigned c = class_for(1024); c < kSizeClassCount; ++c) {
        std::vector<void*> blocks;
        for (int i = 0; i < 8; ++i) blocks.push_back(allocate(c));
        for (void* block : blocks) release(block);
      }
      held += current_cache->held_bytes();
      ++filled;
      while (filled.load() != kThreads) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(held.load(), kThreads * (size_t{512} << 10) + ThreadCache::kProcessBytes);
  EXPECT_GT(held.load(), ThreadCache::kProcessBytes);
}

TEST_F(ThreadCacheTest, AFullMagazineGivesTheColdHalfAway) {
  in_thread([] {
    std::vector<void*> blocks;
    for (int i = 0; i < 5000; ++i) blocks.push_back(allocate(1));
    const uint64_t flushes = current_cache->flushes();
    for (void* block : blocks) release(block);
    EXPECT_GT(current_cache->flushes(), flushes);
    // What it still holds is what was freed last.
    const size_t held = current_cache->held_blocks(1);
    ASSERT_GT(held, 0u);
    for (size_t i = 0; i < held; ++i)
      ASSERT_EQ(current_cache->pop(1), blocks[blocks.size() - 1 - i]);
    for (size_t i = 0; i < held; ++i) release(blocks[blocks.size() - 1 - i]);
  });
}

TEST_F(ThreadCacheTest, AClassThatFellIdleIsEmptiedByTheTrafficOfOthers) {
  in_thread([] {
    std::vector<void*> blocks;
    for (int i = 0; i < 400; ++i) blocks.push_back(allocate(10));
    for (void* block : blocks) release(block);
    const size_t held = current_cache->held_blocks(10);
    ASSERT_GT(held, 20u);
    blocks.clear();
    for (int i = 0; i < 400'000 && current_cache->held_blocks(10) != 0; ++i) {
      blocks.push_back(allocate(2));
      if (blocks.size() == 3000) {
        for (void* block : blocks) release(block);
        blocks.clear();
      }
    }
    EXPECT_EQ(current_cache->held_blocks(10), 0u);
    for (void* block : blocks) release(block);
  });
}

// Misses and overflows of `pairs` blocks, each freed before the next.
uint64_t slow_in_pairs(unsigned c, int pairs) {
  const uint64_t before = current_cache->refills() + current_cache->flushes();
  for (int i = 0; i < pairs; ++i) release(allocate(c));
  return current_cache->refills() + current_cache->flushes() - before;
}

// Fills magazines until the thread may hold no more; returns the classes.
std::vector<unsigned> use_up_the_room() {
  std::vector<unsigned> classes;
  for (unsigned c = class_for(512); classes.size() <= kThreadBytes / kClassBytes; ++c) classes.push_back(c);
  for (int round = 0; round < 4; ++round) {
    for (const unsigned c : classes) {
      std::vector<void*> blocks;
      for (int i = 0; i < 600; ++i) blocks.push_back(allocate(c));
      for (void* block : blocks) release(block);
    }
  }
  return classes;
}

TEST_F(ThreadCacheTest, AClassThatComesLateGetsItsPlaceFromTheLargestMagazine) {
  in_thread([] {
    use_up_the_room();
    const unsigned late = class_for(16384);
    EXPECT_LE(slow_in_pairs(late, 1000), 2u) << "its first slots must be had at once";
    EXPECT_LE(current_cache->held_bytes(), kThreadBytes + 16384 * 2);
  });
}

TEST_F(ThreadCacheTest, RoomOfClassesThatFellIdleGoesToThoseInUse) {
  in_thread([] {
    use_up_the_room();
    // Another size's batches, long enough for collections: in the end they fit its magazine.
    const unsigned c = class_for(640);
    std::vector<void*> blocks;
    uint64_t slow = 1;
    for (int round = 0; round < 3000 && slow != 0; ++round) {
      slow = current_cache->refills() + current_cache->flushes();
      for (int i = 0; i < 100; ++i) blocks.push_back(allocate(c));
      for (void* block : blocks) release(block);
      blocks.clear();
      slow = current_cache->refills() + current_cache->flushes() - slow;
    }
    EXPECT_EQ(slow, 0u);
  });
}

TEST_F(ThreadCacheTest, ACollectionLeavesAClassInUseTheBlockItNeeds) {
  in_thread([] {
    release(allocate(30));
    std::vector<void*> blocks;
    const uint64_t before = default_small_heap.stats(30).taken;
    for (int round = 0; round < 500; ++round) {  // some dozen collections
      for (int i = 0; i < 100; ++i) blocks.push_back(allocate(class_for(16384)));
      for (void* block : blocks) release(block);
      blocks.clear();
      release(allocate(30));
    }
    EXPECT_LE(default_small_heap.stats(30).taken - before, 8u) << "pairs need no second block";
  });
}

TEST_F(ThreadCacheTest, AClassThatComesBackSoonFindsItsArrayAgain) {
  in_thread([] {
    const unsigned c = class_for(640), busy = class_for(16384);
    const auto batch = [](unsigned size_class) {
      std::vector<void*> blocks;
      for (int i = 0; i < 100; ++i) blocks.push_back(allocate(size_class));
      for (void* block : blocks) release(block);
    };
    batch(busy);
    const size_t without = metadata.used_bytes();
    for (int round = 0; round < 8; ++round) batch(c);
    const size_t with = metadata.used_bytes();
    ASSERT_GE(with - without, 100 * sizeof(void*)) << "it grew";
    for (int turn = 0; turn < 10; ++turn) {
      for (int round = 0; round < 40; ++round) batch(busy);  // three or four collections
      EXPECT_EQ(current_cache->held_blocks(c), 0u) << "what it held went home";
      EXPECT_EQ(metadata.used_bytes(), with);
      EXPECT_TRUE(current_cache->is_valid());
      for (int round = 0; round < 8; ++round) batch(c);
      EXPECT_EQ(metadata.used_bytes(), with) << "and no array was moved";
    }
    for (int round = 0; round < 200; ++round) batch(busy);
    EXPECT_EQ(metadata.used_bytes(), without) << "who stays away gives it back";
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
    // 64 MiB freed, then nothing but a loop that a magazine serves alone.
    bool zero;
    std::vector<Span*> runs;
    for (int i = 0; i < 32; ++i) {
      runs.push_back(page_heap.allocate_large(Pages(512), Pages(1), 1, 0, &zero));
    }
    for (Span* run : runs) page_heap.free(run);
    ASSERT_TRUE(page_heap.wants_ticks());
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
    EXPECT_FALSE(page_heap.wants_ticks());
    // Nothing is armed any more: the loop takes no slow call.
    const BinStats before = default_small_heap.stats(3);
    ASSERT_NE(block = current_cache->pop(3), nullptr);
    EXPECT_TRUE(current_cache->push(3, block));
    EXPECT_EQ(default_small_heap.stats(3).taken, before.taken);
  });
}

TEST_F(ThreadCacheTest, BatchesThatOnlyHitTakeASlowCallNowAndThenInEitherOrder) {
  in_thread([] {
    for (const bool in_order : {false, true}) {
      for (size_t blocks = 1; blocks <= 9; ++blocks) {
        std::vector<void*> batch(blocks);
        const auto round = [&] {
          for (void*& block : batch) block = allocate(3);
          for (size_t i = 0; i < blocks; ++i) release(batch[in_order ? i : blocks - 1 - i]);
        };
        for (int i = 0; i < 8; ++i) round();
        const uint64_t repeated = current_cache->repeated(), refills = current_cache->refills();
        for (int i = 0; i < 1000; ++i) round();
        EXPECT_EQ(current_cache->refills(), refills);
        EXPECT_GE(current_cache->repeated() - repeated, 1000) << blocks << " blocks, in order: " << in_order;
      }
    }
  });
}

TEST_F(ThreadCacheTest, AnArmedMagazineStillHandsOutWhatItHolds) {
  in_thread([] {
    bool zero;
    Span* run = page_heap.allocate_large(Pages(4096), Pages(1), 1, 0, &zero);
    std::vector<void*> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(allocate(3));
    for (void* block : blocks) release(block);
    page_heap.free(run);
    page_heap.tick();
    ASSERT_TRUE(page_heap.wants_ticks());
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
    bool zero;
    Span* run = page_heap.allocate_large(Pages(8192), Pages(1), 1, 0, &zero);
    page_heap.free(run);
    page_heap.tick();
    ASSERT_TRUE(page_heap.wants_ticks());
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
    // Whatever the arena still has is used up; then every class without slots is served singly.
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
    cache_registry.flush_current();  // a collection may have taken an idle class's slots for another
    for (unsigned c = 3; c < kSizeClassCount; ++c) EXPECT_EQ(slots_out(c), 0u);
    release(one);
    fake::clear_failures();
  });
}

TEST_F(ThreadCacheTest, WithoutMemoryForACacheAThreadGoesToTheBins) {
  std::vector<void*> blocks;
  in_thread([&] {
    void* held = allocate(2);  // while this thread lives its cache is no spare one for the next
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
