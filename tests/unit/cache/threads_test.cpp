// Caches of real threads on the real system: blocks that cross threads, and the end of a thread.
#include <pthread.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cache/cache_registry.h"
#include "random.h"
#include "this_process.h"

namespace loam {
namespace {

void* allocate(unsigned c) {
  void* block = current_cache->pop(c);
  return block != nullptr ? block : current_cache->allocate_slow(c);
}

void release(void* block) {
  const unsigned c = static_cast<unsigned>(class_at(block));
  ASSERT_NE(c, 0u);
  if (!current_cache->push(c, block)) current_cache->free_slow(c, block);
}

size_t slots_out() {
  size_t total = 0;
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const BinStats s = default_small_heap.stats(c);
    total += s.slots - s.free_slots;
  }
  return total;
}

void expect_everything_home() {
  cache_registry.flush_current();
  default_small_heap.compact();
  EXPECT_EQ(slots_out(), 0u);
  EXPECT_EQ(page_heap.stats().used.count, 0u);
  EXPECT_TRUE(default_small_heap.is_valid());
  EXPECT_TRUE(page_heap.is_valid());
}

TEST(Threads, AnEndedThreadLeavesNothingBehind) {
  const size_t threads = cache_registry.totals().threads;
  std::vector<std::thread> workers;
  for (int t = 0; t < 8; ++t) {
    workers.emplace_back([] {
      std::vector<void*> blocks;
      for (unsigned c = 1; c < kSizeClassCount; ++c) {
        for (int i = 0; i < 30; ++i) blocks.push_back(allocate(c));
      }
      for (void* block : blocks) release(block);
      release(allocate(1));  // collections may have taken the idle magazines of the others
      EXPECT_GT(current_cache->held_bytes(), 0u);
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(cache_registry.totals().threads, threads);
  EXPECT_EQ(cache_registry.totals().held_bytes, current_cache->held_bytes());
  expect_everything_home();
}

TEST(Threads, RoomThatThreadsHadIsFreeAfterThem) {
  const size_t before = ThreadCache::process_room.held();
  for (int round = 0; round < 3; ++round) {
    std::thread([&] {
      // Magazines of many classes, beyond the thread's due.
      std::vector<void*> blocks;
      for (int pass = 0; pass < 4; ++pass) {
        for (unsigned c = 1; c < kSizeClassCount; ++c) {
          for (int i = 0; i < 60; ++i) blocks.push_back(allocate(c));
        }
        for (void* block : blocks) release(block);
        blocks.clear();
      }
      EXPECT_GT(ThreadCache::process_room.held(), before);
    }).join();
    EXPECT_EQ(ThreadCache::process_room.held(), before) << round;
  }
}

TEST(Threads, CachesOfEndedThreadsAreUsedAgain) {
  std::thread([] { release(allocate(1)); }).join();
  for (int i = 0; i < 200; ++i) {
    std::thread([] { release(allocate(1)); }).join();
  }
  EXPECT_LE(cache_registry.totals().threads, 1u);
  expect_everything_home();
}

TEST(Threads, BlocksFreedByOthersComeHome) {
  // Producers and consumers in a ring; every block crosses a thread and carries a mark.
  constexpr unsigned kThreads = 3, kBlocks = 20'000, kPlaces = 512;
  struct Ring {
    std::atomic<void*> places[kPlaces] = {};
  };
  std::vector<Ring> rings(kThreads);
  std::atomic<unsigned> wrong{0};
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < kThreads; ++t) {
    workers.emplace_back([&, t] {
      test::Random random = test::seeded(t);
      Ring& out = rings[t];
      Ring& in = rings[(t + 1) % kThreads];
      for (unsigned i = 0; i < kBlocks; ++i) {
        const unsigned c = random.between(1, 40);
        void* block = allocate(c);
        memset(block, static_cast<int>(c), kSizeClasses[c].bytes);
        void* old = out.places[random.below(kPlaces)].exchange(block);
        if (old != nullptr) release(old);
        void* got = in.places[random.below(kPlaces)].exchange(nullptr);
        if (got == nullptr) continue;
        const unsigned mark = static_cast<unsigned>(class_at(got));
        const unsigned char* bytes = static_cast<unsigned char*>(got);
        wrong += bytes[0] != mark || bytes[kSizeClasses[mark].bytes - 1] != mark;
        release(got);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(wrong.load(), 0u);
  for (Ring& ring : rings) {
    for (auto& place : ring.places) {
      if (void* block = place.exchange(nullptr)) release(block);
    }
  }
  expect_everything_home();
}

TEST(Threads, LargeBlocksThatOneThreadFreesAnotherTakes) {
  constexpr unsigned kBlocks = 40;
  std::barrier sync(2);
  for (unsigned c = class_for(4096); c < kSizeClassCount; c += 8) {
    void* blocks[kBlocks] = {};
    std::thread taker([&] {
      for (int round = 0; round < 4; ++round) {
        for (void*& block : blocks) block = allocate(c);
        std::set<void*> distinct(blocks, blocks + kBlocks);
        EXPECT_EQ(distinct.size(), kBlocks);
        sync.arrive_and_wait();
        sync.arrive_and_wait();
      }
    });
    for (int round = 0; round < 4; ++round) {
      sync.arrive_and_wait();
      for (void* block : blocks) release(block);
      EXPECT_TRUE(default_small_heap.is_valid()) << kSizeClasses[c].bytes;
      sync.arrive_and_wait();
    }
    taker.join();
  }
  expect_everything_home();
}

pthread_key_t late_key;
std::atomic<int> late_runs{0};

void late_destructor(void*) {
  // The C library frees after our own destructor ran. Such a thread has no cache any more, and gets
  // none.
  EXPECT_EQ(current_cache->state(), ThreadCache::State::kEnded);
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(allocate(5));
  for (void* block : blocks) release(block);
  EXPECT_EQ(current_cache->state(), ThreadCache::State::kEnded);
  EXPECT_EQ(current_cache->held_blocks(5), 0u);
  ++late_runs;
}

TEST(Threads, WhatIsFreedAfterTheThreadsEndGoesHomeAtOnce) {
  if (test::kKeysEndFirst) GTEST_SKIP() << "a key's destructor runs before the heap's hook";
  release(allocate(5));  // registers the hook, so that the key below comes after it
  ASSERT_EQ(pthread_key_create(&late_key, &late_destructor), 0);
  const size_t threads = cache_registry.totals().threads;
  std::thread([] {
    release(allocate(5));
    pthread_setspecific(late_key, &late_key);
  }).join();
  EXPECT_EQ(late_runs.load(), 1);
  EXPECT_EQ(cache_registry.totals().threads, threads);
  pthread_key_delete(late_key);
  expect_everything_home();
}

TEST(Threads, CountsMayBeReadWhileOthersAllocate) {
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    std::vector<void*> blocks;
    while (!stop) {
      for (int i = 0; i < 500; ++i) blocks.push_back(allocate(4));
      for (void* block : blocks) release(block);
      blocks.clear();
    }
  });
  for (int i = 0; i < 2000; ++i) {
    EXPECT_LE(cache_registry.held_blocks(4), 2u * 512);
    const auto totals = cache_registry.totals();
    EXPECT_LE(totals.held_bytes, size_t{4} << 20);
  }
  stop = true;
  worker.join();
  expect_everything_home();
}

}  // namespace
}  // namespace loam
