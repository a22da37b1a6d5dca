// fork(): the child has one thread, every lock is free, and no memory of the other threads is lost.
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cache/thread_cache.h"
#include "heap/blocks.h"
#include "heap/equations.h"
#include "heap/heap.h"
#include "private/heap_registry.h"

namespace loam {
namespace {

using test::Blocks;
using test::Random;
using test::totals;

/// Runs `body` in a child and returns the child's exit status (a signal is 128 + its number). A
/// child that hangs is killed after some seconds.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class ForkTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { test::start_once(); }
};

TEST_F(ForkTest, TheChildGoesOnWithItsOwnBlocks) {
  Blocks blocks;
  for (size_t bytes = 1; bytes < (size_t{64} << 20); bytes = bytes * 3 / 2 + 7) {
    blocks.add(heap::allocate(bytes), bytes);
  }
  EXPECT_EQ(in_child([&] {
              for (void* block : blocks.all()) {
                if (!Blocks::marked(block, blocks.bytes(block), blocks.fill(block))) return 1;
                heap::free(block);
              }
              void* fresh = heap::allocate(1000);
              if (fresh == nullptr || !heap::is_valid()) return 2;
              heap::free(fresh);
              heap::compact();
              Snapshot s = totals();
              return s.used_bytes == 0 && s.live_huge_bytes == 0 ? 0 : 3;
            }),
            0);
  for (void* block : blocks.all()) blocks.check(block);
}

TEST_F(ForkTest, TheChildForgetsRoomThatNobodyHolds) {
  // Like a thread that fork() interrupted between the count of all threads and its own.
  constexpr size_t kMuch = size_t{64} << 20;
  ASSERT_TRUE(ThreadCache::process_room.take(kMuch, SIZE_MAX));
  ASSERT_TRUE(RunCache::process_room.take(kMuch, SIZE_MAX));
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) std::this_thread::yield();
  });
  EXPECT_EQ(in_child([] {
              if (RunCache::process_room.held() != current_cache->runs().room().bytes()) return 1;
              return ThreadCache::process_room.held() < kMuch ? 0 : 2;
            }),
            0);
  stop = true;
  other.join();
  ThreadCache::process_room.give(kMuch);
  RunCache::process_room.give(kMuch);
}

TEST_F(ForkTest, TheChildAdoptsWhatOtherThreadsHadCached) {
  std::atomic<int> ready{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      std::vector<void*> blocks;
      for (int i = 0; i < 500; ++i) blocks.push_back(heap::allocate(200));
      for (void* block : blocks) heap::free(block);
      ++ready;
      while (!stop) std::this_thread::yield();
    });
  }
  while (ready != 3) std::this_thread::yield();
  EXPECT_EQ(in_child([] {
              Snapshot s = totals();
              if (s.threads > 1) return 1;
              heap::compact();
              s = totals();
              if (s.cached_bytes != 0 || s.live_small_bytes != 0) return 2;
              return heap::is_valid() ? 0 : 3;
            }),
            0);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(heap::is_valid());
}

TEST_F(ForkTest, ForksAmongBusyThreadsNeitherHangNorBreakTheChild) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Random random = test::seeded(t);
      std::vector<void*> blocks;
      while (!stop) {
        if (blocks.size() < 200 || random.chance(50)) {
          blocks.push_back(heap::allocate(random.magnitude(random.chance(98) ? 3000 : 300'000)));
        } else {
          std::swap(blocks.back(), blocks[random.below(blocks.size())]);
          heap::free(blocks.back());
          blocks.pop_back();
        }
      }
      for (void* block : blocks) heap::free(block);
    });
  }
  for (int i = 0; i < 150; ++i) {
    const int status = in_child([&] {
      std::vector<void*> blocks;
      for (size_t bytes = 16; bytes < 200'000; bytes = bytes * 5 / 4)
        blocks.push_back(heap::allocate(bytes));
      for (void* block : blocks) {
        if (block == nullptr) return 1;
        heap::free(block);
      }
      return heap::is_valid() ? 0 : 2;
    });
    ASSERT_EQ(status, 0) << "fork " << i;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(heap::is_valid());
}

// A thread is stopped on a private heap's fast path. There the slot has left the magazine and is
// not live yet, or has been marked and is not in the magazine yet. Two threads can be there at
// once. If one slot more is missing than threads were there, that is a fault.
TEST_F(ForkTest, TheChildFindsAHeapWholeThatOthersWereTakingFrom) {
  for (const unsigned threads : {1u, 2u}) {
    for (const unsigned missing : {threads, threads + 1}) {
      loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
      options.flags = LOAM_HEAP_EAGER;
      loam_status why = LOAM_OK;
      PrivateHeap* heap = heap_registry.create(options, &why);
      ASSERT_NE(heap, nullptr);
      std::atomic<unsigned> inside{0};
      std::atomic<bool> over{false};
      const auto stand_still = [&](unsigned slots) {
        void* block = heap->allocate(64, LOAM_ALIGNMENT, false, &why);
        ASSERT_EQ(heap->free(block), LOAM_OK);
        ThreadHeaps* thread = thread_heaps();
        HeapMagazine& m = thread->door_of(heap).cache->magazines[class_for(64)];
        ASSERT_GE(m.held(), slots);
        thread->enter();
        m.head -= slots;
        ++inside;
        while (!over) std::this_thread::yield();
        m.head += slots;
        thread->leave();
      };
      std::vector<std::thread> others;
      for (unsigned t = 0; t < threads; ++t) {
        others.emplace_back(stand_still, t == 0 ? 1 + missing - threads : 1);
        while (inside <= t) std::this_thread::yield();
      }
      EXPECT_EQ(
          in_child([&] {
            const bool valid = heap->is_valid();
            return valid == (missing == threads) && heap_registry.destroy(heap) == LOAM_OK ? 0 : 1;
          }),
          0);
      over = true;
      for (std::thread& other : others) other.join();
      EXPECT_TRUE(heap->is_valid());
      EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
    }
  }
}

TEST_F(ForkTest, AGrandchildWorksToo) {
  EXPECT_EQ(in_child([] {
              heap::free(heap::allocate(100));
              return in_child([] {
                heap::free(heap::allocate(100));
                return heap::is_valid() ? 0 : 1;
              });
            }),
            0);
}

}  // namespace
}  // namespace loam
