// The runs above the largest class that a thread keeps: the next block takes no lock, there is a
// bound, and nothing stays after the thread. Tests that count locks are RunCacheImplementation.
#include "cache/run_cache.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cache/cache_registry.h"
#include "counters/stats.h"
#include "heap/blocks.h"
#include "heap/heap.h"
#include "os/fatal.h"
#include "random.h"
#include "this_process.h"

namespace loam {
namespace {

constexpr size_t kKiB = 1024;
constexpr Pages kMostRoom{RunCache::kMostRoom};
// The most looks of the purge during `frees` frees.
constexpr uint64_t looks(uint64_t frees) { return frees / ThreadCache::kRunsPerLook + 1; }

const RunCache& cache() { return current_cache->runs(); }

// Each body runs in a thread of its own, which has a cache of its own.
void in_thread(const std::function<void()>& body) {
  std::thread([&] {
    body();
    EXPECT_TRUE(cache().is_valid());
  }).join();
}

// Removes freed runs that wait. Such a run could serve the next request although it is a sixteenth
// longer.
void have_no_run_wait() { static_cast<void>(heap::compact()); }

// Frees a few large blocks, so that the cache gets room.
void warm_up(size_t bytes) {
  for (int i = 0; i < 8; ++i) heap::free(heap::allocate(bytes));
  ASSERT_GT(cache().held_runs(), 0u)
      << "all threads have room for " << RunCache::process_room.held() << " bytes, this one "
      << cache().room().bytes();
}

// Frees the block in a thread that ends at once, so that its cache keeps nothing.
void free_elsewhere(void* block) {
  std::thread([=] { heap::free(block); }).join();
}

uint64_t value(stats::CounterId id) {
  stats::Values values;
  EXPECT_TRUE(stats::read(nullptr, &values));
  return values.of[id];
}

TEST(RunCacheImplementation, ALoopTakesNoLockOnceItRepeats) {
  for (const size_t bytes : {33 * kKiB, 64 * kKiB, 512 * kKiB, 1024 * kKiB}) {
    in_thread([bytes] {
      have_no_run_wait();
      warm_up(bytes);
      const uint64_t before = page_heap.mutex().acquisitions();
      for (int i = 0; i < 1000; ++i) heap::free(heap::allocate(bytes));
      // The purge may look after every so many frees.
      EXPECT_LE(page_heap.mutex().acquisitions(), before + looks(1000)) << bytes;
    });
  }
}

TEST(RunCacheImplementation, ALoopOfAlignedBlocksTakesNoLockOnceItRepeats) {
  for (const size_t alignment : {2 * kPageBytes, 64 * kKiB, 2048 * kKiB}) {
    for (const size_t bytes : {40 * kKiB, 96 * kKiB, 1024 * kKiB}) {
      in_thread([=] {
        have_no_run_wait();
        warm_up(bytes);
        // Shifts later addresses, so that they are not aligned by chance.
        void* unaligned = heap::allocate(bytes + kPageBytes);
        const auto round = [=] {
          void* block = heap::allocate_aligned(alignment, bytes);
          EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
          EXPECT_GE(heap::usable_size(block), bytes);
          heap::free(block);
        };
        for (int i = 0; i < 8; ++i) round();
        const uint64_t before = page_heap.mutex().acquisitions();
        for (int i = 0; i < 1000; ++i) round();
        EXPECT_LE(page_heap.mutex().acquisitions(), before + looks(1000))
            << alignment << " " << bytes;
        heap::free(unaligned);
      });
    }
  }
}

// The heap must not grow while a thread keeps unused memory: runs of lengths that it no longer
// wants become parts of longer runs.
TEST(RunCacheTest, WhatTheHeapGrowsByGoesHomeFromTheCache) {
  in_thread([] {
    have_no_run_wait();
    heap::free(heap::allocate(Pages(450).bytes()));  // for all later requests except the last
    for (size_t pages = 20; pages < 34; ++pages) warm_up(Pages(pages).bytes());
    const Pages kept = cache().held();
    ASSERT_GT(kept, Pages(200));
    // The cache gives up as many pages, and the rest of a run.
    current_cache->note_growth(Pages(50));
    EXPECT_LE(cache().held() + Pages(50), kept);
    EXPECT_GT(cache().held() + Pages(50 + 34), kept);
    // Longer than all free runs, even if joined.
    const uint64_t before = value(stats::kFreshBytes);
    void* const longer = heap::allocate(Pages(500).bytes());
    ASSERT_GT(value(stats::kFreshBytes), before) << "it did not grow";
    EXPECT_EQ(cache().held(), Pages(0));
    heap::free(longer);
  });
}

TEST(RunCacheTest, WhatTheHeapGrowsByForSmallBlocksGoesHomeTooAndServesThem) {
  in_thread([] {
    have_no_run_wait();
    heap::free(heap::allocate(Pages(450).bytes()));
    for (size_t pages = 20; pages < 34; ++pages) warm_up(Pages(pages).bytes());
    const Pages kept = cache().held();
    ASSERT_GT(kept, Pages(200));
    const uint64_t before = value(stats::kFreshBytes);
    const Pages enough = kept + kept;
    std::vector<void*> blocks;
    for (size_t i = 0; i < enough.bytes() / 512; ++i) blocks.push_back(heap::allocate(512));
    EXPECT_EQ(cache().held(), Pages(0));
    const size_t fresh = value(stats::kFreshBytes) - before;
    EXPECT_GT(fresh, 0u);
    EXPECT_LT(fresh, enough.bytes() - kept.bytes() / 2)
        << "half of what was kept at least is among the blocks' pages";
    for (void* block : blocks) heap::free(block);
  });
}

// Rounds of blocks of one length, first in, first out.
class Rounds {
 public:
  Rounds(size_t blocks, size_t bytes) : bytes_(bytes), blocks_(blocks) {}
  void run(int rounds) {
    for (int r = 0; r < rounds; ++r) {
      for (void*& block : blocks_) block = heap::allocate(bytes_);
      for (void* block : blocks_) heap::free(block);
    }
  }
  [[nodiscard]] void* block(size_t i) const { return blocks_[i]; }

 private:
  size_t bytes_;
  std::vector<void*> blocks_;
};

TEST(RunCacheImplementation, ManyBlocksOfOneLengthTakeALockForSeveral) {
  // The number of runs of a length that wait in a batch: half of what a thread keeps, and at least
  // two.
  const struct {
    size_t bytes;
    unsigned batch;
  } cases[] = {
      {40 * kKiB, 16}, {64 * kKiB, 16}, {256 * kKiB, 4}, {512 * kKiB, 2}, {1024 * kKiB, 2}};
  for (const auto& its : cases) {
    // No structured binding: clang 14 captures none.
    const size_t bytes = its.bytes;
    const unsigned batch = its.batch;
    in_thread([=] {
      have_no_run_wait();
      Rounds many(200, bytes);
      many.run(3);  // a thread that was passed by is so for 1,024 frees, or 32 in a row of the
                    // length that was asked for
      const unsigned shard = current_cache->page_shard();
      const uint64_t before = page_heap.shard_mutex(shard).acquisitions();
      many.run(1);
      // Twice for each batch, and the locks for looking at parked runs.
      EXPECT_LE(page_heap.shard_mutex(shard).acquisitions(), before + 2 * 200 / batch + 200 / 8)
          << bytes;
      EXPECT_LE(cache().held(), kMostRoom);
    });
    EXPECT_TRUE(page_heap.is_valid());
  }
}

TEST(RunCacheTest, BatchesGoOnSoonAfterTheLengthChanges) {
  in_thread([] {
    have_no_run_wait();
    Rounds(64, 128 * kKiB).run(4);
    for (const size_t bytes : {128 * kKiB, 256 * kKiB, 512 * kKiB, 1024 * kKiB}) {
      Rounds many(64, bytes);
      for (int r = 0; r < 4; ++r) {
        many.run(1);
        EXPECT_FALSE(cache().is_bypassed()) << bytes << ", round " << r;
      }
    }
  });
}

// Frees blocks of many lengths until the heap bypasses the thread's cache, which serves none of
// them.
void be_passed_by() {
  std::vector<void*> blocks;
  for (size_t i = 0; i < 400; ++i) blocks.push_back(heap::allocate((36 + 4 * (i * 7 % 50)) * kKiB));
  for (size_t i = 0; i < blocks.size(); ++i) {
    heap::free(blocks[i]);
    if (!cache().is_bypassed()) continue;
    for (++i; i < blocks.size(); ++i) free_elsewhere(blocks[i]);
  }
  ASSERT_TRUE(cache().is_bypassed());
}

TEST(RunCacheTest, ACacheThatWasPassedByIsTriedAgainSoonByBlocksOfOneLengthAlone) {
  for (const bool one_length : {true, false}) {
    in_thread([one_length] {
      have_no_run_wait();
      be_passed_by();
      if (HasFatalFailure()) return;
      int frees = 0;
      std::vector<void*> blocks;
      for (size_t i = 0; i < 200; ++i)
        blocks.push_back(heap::allocate((one_length ? 1024 : 40 + 4 * (i * 7 % 50)) * kKiB));
      for (void* block : blocks) {
        frees += cache().is_bypassed();
        heap::free(block);
      }
      EXPECT_EQ(frees, one_length ? 32 : 200);
    });
  }
  EXPECT_TRUE(page_heap.is_valid());
}

TEST(RunCacheTest, WhatWaitsInBatchesServesBlocksOfAnotherLength) {
  in_thread([] {
    have_no_run_wait();
    page_heap.keep_falls();
    Rounds(512, 64 * kKiB).run(3);
    const uint64_t fresh = page_heap.stats().fresh_pages;
    // All pages except those in the cache, and an eighth for runs that end with their slabs.
    Rounds(26, 1024 * kKiB).run(1);
    EXPECT_EQ(page_heap.stats().fresh_pages, fresh);
  });
  EXPECT_TRUE(page_heap.is_valid());
}

TEST(RunCacheTest, ABlockThatWaitsInABatchIsNobodys) {
  in_thread([] {
    Rounds many(200, 64 * kKiB);
    many.run(3);
    set_corruption_policy(CorruptionPolicy::kReport);
    testing::internal::CaptureStderr();
    for (size_t i = 0; i < 200; i += 50) {
      EXPECT_FALSE(is_live(many.block(i)));
      EXPECT_EQ(heap::usable_size(many.block(i)), 0u);
      heap::free(many.block(i));
    }
    set_corruption_policy(CorruptionPolicy::kAbort);
    const std::string report = testing::internal::GetCapturedStderr();
    size_t reports = 0;
    for (size_t at = 0; (at = report.find("is no block", at)) != std::string::npos; ++at) ++reports;
    EXPECT_EQ(reports, 4u) << report;
  });
  EXPECT_TRUE(page_heap.is_valid());
}

// For ThreadSanitizer: the neighbour's thread changes the record without a lock.
TEST(RunCacheTest, ABlockGrowsBesideOneThatAnotherThreadKeepsAndTakes) {
  in_thread([] {
    constexpr size_t kBytes = 64 * kKiB;
    Rounds many(200, kBytes);
    many.run(3);
    std::vector<char*> blocks;
    for (int i = 0; i < 100; ++i) blocks.push_back(static_cast<char*>(heap::allocate(kBytes)));
    char *left = nullptr, *right = nullptr;
    for (char* block : blocks) {
      const auto behind = std::find(blocks.begin(), blocks.end(), block + kBytes);
      if (behind == blocks.end()) continue;
      left = block;
      right = *behind;
    }
    ASSERT_NE(left, nullptr);
    std::atomic<bool> stop{false};
    std::thread other([&stop, right] {
      warm_up(kBytes);
      void* block = right;
      while (!stop) {
        heap::free(block);
        block = heap::allocate(kBytes);
      }
      heap::free(block);
    });
    for (int i = 0; i < 200; ++i) {
      // The resize is refused, or succeeds once the other thread has released the neighbour.
      if (heap::try_resize(left, 2 * kBytes)) break;
      std::this_thread::yield();
    }
    stop = true;
    other.join();
    for (char* block : blocks) {
      if (block != right) heap::free(block);
    }
  });
  EXPECT_TRUE(page_heap.is_valid());
}

// A run grows into a run behind it that waits in a batch. To learn that a thread keeps the run
// behind it, the heap joins only some batches.
TEST(RunCacheImplementation, ABlockBesideOneThatIsKeptLeavesMostBatchesAsTheyStand) {
  in_thread([] {
    have_no_run_wait();
    constexpr size_t kBytes = 64 * kKiB;
    std::vector<char*> blocks;
    for (int i = 0; i < 600; ++i) blocks.push_back(static_cast<char*>(heap::allocate(kBytes)));
    // Repeats until the thread keeps as many as it may.
    for (int round = 0; round < 8; ++round) {
      std::sort(blocks.begin(), blocks.end());
      for (char* block : blocks) heap::free(block);
      for (char*& block : blocks) block = static_cast<char*>(heap::allocate(kBytes));
    }
    std::sort(blocks.begin(), blocks.end());
    size_t at = blocks.size() - 2;
    while (at != 0 && blocks[at] + kBytes != blocks[at + 1]) --at;
    ASSERT_NE(at, 0u);
    char* const left = blocks[at];
    char* const right = blocks[at + 1];
    for (char* block : blocks) {
      if (block != left && block != right) heap::free(block);
    }
    heap::free(right);  // kept
    EXPECT_FALSE(heap::try_resize(left, 2 * kBytes));
    // Runs that are still in batches are taken without a cut.
    const unsigned shard = current_cache->page_shard();
    const uint64_t before = page_heap.shard_mutex(shard).acquisitions();
    for (char*& block : blocks)
      block = block == left ? left : static_cast<char*>(heap::allocate(kBytes));
    EXPECT_LE(page_heap.shard_mutex(shard).acquisitions(), before + 600 / 4);
    for (char* block : blocks) heap::free(block);
  });
  EXPECT_TRUE(page_heap.is_valid());
}

TEST(RunCacheImplementation, ALoopIsGivenNoRunThatItCanNotKeep) {
  // A parked run is a sixteenth longer than the blocks of the loop, and longer than runs that
  // threads keep.
  for (const size_t pages : {255, 256}) {
    in_thread([pages] {
      have_no_run_wait();
      void* fence = heap::allocate(40 * kPageBytes);
      void* longer = heap::allocate(RunCache::kLongest.bytes() + 10 * kPageBytes);
      void* behind = heap::allocate(40 * kPageBytes);
      heap::free(longer);
      warm_up(pages * kPageBytes);
      const uint64_t before = page_heap.mutex().acquisitions();
      for (int i = 0; i < 1000; ++i) heap::free(heap::allocate(pages * kPageBytes));
      EXPECT_LE(page_heap.mutex().acquisitions(), before + looks(1000)) << pages;
      heap::free(fence);
      heap::free(behind);
    });
  }
}

TEST(RunCacheTest, AThreadThatFreesAFewKeepsNone) {
  in_thread([] {
    for (int i = 0; i < 3; ++i) heap::free(heap::allocate(100 * kKiB));
    EXPECT_EQ(cache().held(), Pages(0));
  });
}

TEST(RunCacheTest, ARunServesItsLengthAndUpToASixteenthLess) {
  in_thread([] {
    have_no_run_wait();
    warm_up(160 * kPageBytes);
    void* kept = heap::allocate(160 * kPageBytes);
    heap::free(kept);
    const auto takes = [&](size_t pages) {
      const uint64_t before = cache().counts().taken;
      void* block = heap::allocate(pages * kPageBytes);
      const bool hit = cache().counts().taken != before;
      EXPECT_EQ(hit, block == kept) << pages;
      EXPECT_GE(heap::usable_size(block), pages * kPageBytes);
      heap::free(block);
      return hit;
    };
    EXPECT_TRUE(takes(160));
    EXPECT_TRUE(takes(151));
    EXPECT_FALSE(takes(150));
    EXPECT_FALSE(takes(161));
  });
}

TEST(RunCacheTest, ItHoldsABoundedNumberOfPages) {
  in_thread([] {
    auto random = test::seeded(7);
    std::vector<void*> blocks(200, nullptr);
    Pages most{};
    for (int i = 0; i < 20'000; ++i) {
      void*& block = blocks[random.below(static_cast<uint32_t>(blocks.size()))];
      heap::free(block);
      block = heap::allocate(33 * kKiB + random.below(1000 * kKiB));
      if (cache().held() > most) most = cache().held();
      ASSERT_LE(cache().held_runs(), RunCache::kMostRuns);
    }
    EXPECT_LE(most, kMostRoom);
    EXPECT_GT(cache().counts().taken, 0u);
    for (void* block : blocks) heap::free(block);
    EXPECT_LE(cache().held(), kMostRoom);
  });
  EXPECT_TRUE(page_heap.is_valid());
}

TEST(RunCacheTest, ThreadsShareTheirRoomAndGiveItBack) {
  // Each thread wants 2 MiB. In a heap as small as this, all together have 4 MiB (run_cache.cpp:
  // `process_room`).
  constexpr size_t kAll = size_t{4} << 20;
  constexpr int kThreads = 6;
  const size_t before = RunCache::process_room.held();
  std::atomic<int> ready{0};
  std::atomic<size_t> room{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto random = test::seeded(static_cast<unsigned>(t));
      for (int i = 0; i < 20'000; ++i)
        heap::free(heap::allocate(33 * kKiB + random.below(1000 * kKiB)));
      room += cache().room().bytes();
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(room.load(), kAll);
  EXPECT_GT(room.load(), kAll / 4) << "and it is used";
  EXPECT_EQ(RunCache::process_room.held(), before);
}

TEST(RunCacheTest, TrimAndTheThreadsEndBringAllHome) {
  const Pages others = cache_registry.runs().held;
  in_thread([] {
    warm_up(200 * kKiB);
    static_cast<void>(heap::compact());
    EXPECT_EQ(cache().held(), Pages(0));
    heap::free(heap::allocate(200 * kKiB));
    EXPECT_GT(cache().held(), Pages(0));
  });
  EXPECT_EQ(cache_registry.runs().held, others);
  EXPECT_TRUE(page_heap.is_valid());
}

TEST(RunCacheTest, WhatIsNotUsedGoesAfterAWhile) {
  in_thread([] {
    warm_up(200 * kKiB);
    // Only small calls, many of them slow. These calls maintain the cache of runs too.
    std::vector<void*> blocks;
    for (int i = 0; i < 200'000; ++i) blocks.push_back(heap::allocate(1000));
    EXPECT_EQ(cache().held(), Pages(0));
    for (void* block : blocks) heap::free(block);
  });
}

TEST(RunCacheTest, AKeptBlockIsNobodys) {
  in_thread([] {
    warm_up(100 * kKiB);
    char* block = static_cast<char*>(heap::allocate(100 * kKiB));
    heap::free(block);
    ASSERT_GT(cache().held_runs(), 0u);
    EXPECT_EQ(heap::usable_size(block), 0u);
    EXPECT_FALSE(is_live(block));
    set_corruption_policy(CorruptionPolicy::kReport);
    testing::internal::CaptureStderr();
    heap::free(block);
    EXPECT_EQ(heap::reallocate(block, 200 * kKiB), nullptr);
    set_corruption_policy(CorruptionPolicy::kAbort);
    const std::string report = testing::internal::GetCapturedStderr();
    EXPECT_NE(report.find("free of a pointer that is no block"), std::string::npos) << report;
    EXPECT_NE(report.find("realloc of a pointer that is no block"), std::string::npos) << report;
  });
}

TEST(RunCacheTest, ACleanBlockIsNotOneThatWasKept) {
  in_thread([] {
    for (int i = 0; i < 20; ++i) {
      char* block = static_cast<char*>(heap::allocate_zeroed(100 * kKiB));
      for (size_t at = 0; at < 100 * kKiB; at += 512) ASSERT_EQ(block[at], 0);
      memset(block, 0x5a, 100 * kKiB);
      heap::free(block);
    }
  });
}

TEST(RunCacheTest, CountsAreExactAcrossThreadsAndAfterThem) {
  const uint64_t blocks = value(stats::kLiveLargeBlocks), bytes = value(stats::kLiveLargeBytes);
  const uint64_t rounding = value(stats::kLargeRoundingBytes), cached = value(stats::kCachedBytes);
  const uint64_t balance = value(stats::kLargeAllocs) - value(stats::kLargeFrees);
  std::vector<void*> handed;
  in_thread([&] {
    warm_up(100 * kKiB);
    for (int i = 0; i < 50; ++i) handed.push_back(heap::allocate(100 * kKiB));
    EXPECT_EQ(value(stats::kLiveLargeBlocks), blocks + 50);
    EXPECT_EQ(value(stats::kCachedBytes), cached + cache().held().bytes());
  });
  EXPECT_EQ(value(stats::kLiveLargeBlocks), blocks + 50);
  // Another thread frees them, so it gives more than it ever took.
  in_thread([&] {
    for (void* block : handed) heap::free(block);
    EXPECT_GT(cache().counts().given, 40u);
    EXPECT_EQ(value(stats::kLiveLargeBlocks), blocks);
    EXPECT_EQ(value(stats::kLiveLargeBytes), bytes);
    EXPECT_EQ(value(stats::kLargeRoundingBytes), rounding);
  });
  EXPECT_EQ(value(stats::kLiveLargeBlocks), blocks);
  EXPECT_EQ(value(stats::kLiveLargeBytes), bytes);
  EXPECT_EQ(value(stats::kCachedBytes), cached);
  EXPECT_EQ(value(stats::kLargeAllocs) - value(stats::kLargeFrees), balance);
}

TEST(RunCacheTest, ThreadsThatHandBlocksToEachOtherLoseNone) {
  const uint64_t blocks = value(stats::kLiveLargeBlocks);
  constexpr unsigned kThreads = 4, kSlots = 16;
  std::atomic<void*> slots[kSlots] = {};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto random = test::seeded(t);
      for (int i = 0; i < 5'000; ++i) {
        const size_t bytes = 33 * kKiB + random.below(400 * kKiB);
        char* block = static_cast<char*>(heap::allocate(bytes));
        block[0] = block[bytes - 1] = 1;
        heap::free(slots[random.below(kSlots)].exchange(block));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::atomic<void*>& slot : slots) heap::free(slot.load());
  EXPECT_EQ(value(stats::kLiveLargeBlocks), blocks);
  EXPECT_TRUE(heap::is_valid());
}

// 64 blocks of random lengths, replaced one at a time.
class Churn {
 public:
  explicit Churn(unsigned seed) : random_(test::seeded(seed)) {}
  ~Churn() {
    for (void* block : blocks_) heap::free(block);
  }
  Churn(const Churn&) = delete;
  Churn& operator=(const Churn&) = delete;
  void run(int operations) {
    for (int i = 0; i < operations; ++i) {
      void*& block = blocks_[random_.below(static_cast<uint32_t>(blocks_.size()))];
      heap::free(block);
      block = heap::allocate(33 * kKiB + random_.below(220 * kKiB));
    }
  }

 private:
  test::Random random_;
  std::vector<void*> blocks_ = std::vector<void*>(64, nullptr);
};

TEST(RunCacheImplementation, BlocksOfRandomLengthsSeldomTakeThePageHeapsLock) {
  in_thread([] {
    constexpr int kOperations = 20'000;
    const uint64_t before = page_heap.mutex().acquisitions();
    Churn(1).run(kOperations);
    EXPECT_LT(page_heap.mutex().acquisitions(), before + kOperations / 4);
    // The heap bypasses a cache that serves few requests: the thread's blocks are parked in its
    // shard instead.
    EXPECT_GT(cache().parked(), kOperations / 2u);
    EXPECT_GT(cache().counts().taken, kOperations / 2u);
  });
  EXPECT_TRUE(page_heap.is_valid());
}

TEST(RunCacheImplementation, ThreadsWithBlocksOfRandomLengthsSeldomTakeEachOthersLocks) {
  in_thread([] {
    Churn mine(1);
    mine.run(2'000);
    const unsigned other = current_cache->page_shard();
    in_thread([other] {
      constexpr int kOperations = 20'000;
      Churn its(2);
      its.run(2'000);
      ASSERT_NE(current_cache->page_shard(), other);
      const uint64_t before = page_heap.shard_mutex(other).acquisitions();
      its.run(kOperations);
      // An operation takes two locks. If a shard has too many runs, any thread may take them.
      EXPECT_LT(page_heap.shard_mutex(other).acquisitions(), before + kOperations / 2);
    });
  });
}

TEST(RunCacheImplementation, ALoopOfALengthThatIsNotKeptTakesItsShardsLockAlone) {
  for (const size_t bytes : {1028 * kKiB, 1500 * kKiB, 2048 * kKiB}) {
    in_thread([bytes] {
      heap::free(heap::allocate(bytes));
      heap::free(heap::allocate(bytes));
      constexpr int kPairs = 1'000;
      const uint64_t before = page_heap.mutex().acquisitions();
      for (int i = 0; i < kPairs; ++i) heap::free(heap::allocate(bytes));
      // One search for old runs in 32 frees.
      EXPECT_LE(page_heap.mutex().acquisitions(), before + kPairs / 16) << bytes;
    });
  }
}

TEST(RunCacheTest, ThreadsAtOnceHaveShardsOfTheirOwnAndThreadsInTurnShareOne) {
  // A thread joins a shard with its first large block.
  const auto shard = [] {
    heap::free(heap::allocate(100 * kKiB));
    heap::free(heap::allocate(100 * kKiB));
    return current_cache->page_shard();
  };
  unsigned first = 0, second = 0, third = 0, later = 0;
  in_thread([&] {
    first = shard();
    in_thread([&] { second = shard(); });
    in_thread([&] { third = shard(); });
  });
  in_thread([&] { later = shard(); });
  EXPECT_NE(first, second);
  EXPECT_EQ(second, third) << "the second one's was left";
  EXPECT_EQ(first, later);
}

TEST(RunCacheTest, ThreadsThatBeginAtTheSameMomentHaveShardsOfTheirOwn) {
  constexpr unsigned kThreads = 4;
  for (int round = 0; round < 300; ++round) {
    std::atomic<unsigned> ready{0};
    unsigned joined[kThreads];
    std::vector<std::thread> threads;
    for (unsigned& shard : joined) {
      threads.emplace_back([&] {
        ++ready;
        while (ready != kThreads) {
        }
        shard = page_heap.join_shard();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const unsigned shard : joined) {
      EXPECT_EQ(std::count(std::begin(joined), std::end(joined), shard), 1) << "round " << round;
      page_heap.leave_shard(shard);
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST(RunCacheImplementation, AThreadThatGetsNoRoomFreesUnderItsShardsLockAlone) {
  in_thread([] {
    constexpr size_t kAll = size_t{1} << 40;
    ASSERT_TRUE(RunCache::process_room.take(kAll, SIZE_MAX)) << "as if others held all there is";
    // With a tenth of them, one run in twenty-five exceeded the bound by chance.
    constexpr int kOperations = 40'000;
    Churn churn(3);
    churn.run(1'000);
    const uint64_t before = page_heap.mutex().acquisitions();
    churn.run(kOperations);
    EXPECT_EQ(cache().room(), Pages(0));
#if defined(__SANITIZE_THREAD__)
    constexpr int kMost =
        kOperations / 3;  // ticks by the clock come to it where each operation takes long
#else
    constexpr int kMost = kOperations / 4;
#endif
    EXPECT_LT(page_heap.mutex().acquisitions(), before + kMost);
    RunCache::process_room.give(kAll);
  });
  EXPECT_TRUE(page_heap.is_valid());
}

TEST(RunCacheTest, WhatOneThreadParkedServesAnotherBeforeTheHeapGrows) {
  page_heap.keep_falls();
  in_thread([] {
    std::vector<void*> blocks;
    // More pages than are left to a shard's threads.
    for (int i = 0; i < 200; ++i) blocks.push_back(heap::allocate(200 * kKiB));
    for (void* block : blocks) heap::free(block);
    const uint64_t fresh = page_heap.stats().fresh_pages;
    in_thread([] {
      std::vector<void*> others;
      for (int i = 0; i < 100; ++i) others.push_back(heap::allocate(200 * kKiB));
      for (void* block : others) heap::free(block);
    });
    EXPECT_EQ(page_heap.stats().fresh_pages, fresh);
  });
  EXPECT_TRUE(page_heap.is_valid());
}

TEST(RunCacheTest, AForkedChildTakesTheOthersRunsHome) {
  if (!test::kCanFork) GTEST_SKIP() << "there is no fork()";
  test::start_once();
  std::atomic<int> step{0};
  std::thread other([&] {
    warm_up(300 * kKiB);
    step = 1;
    while (step != 2) std::this_thread::yield();
  });
  while (step != 1) std::this_thread::yield();
  EXPECT_GT(cache_registry.runs().held, Pages(0));
  const auto child = test::fork();
  if (child == 0) {
    // Plain checks, because the child reports what was wrong only by its status.
    if (cache_registry.runs().held != current_cache->runs().held()) _exit(1);
    if (!heap::is_valid()) _exit(2);
    for (int i = 0; i < 100; ++i) heap::free(heap::allocate(300 * kKiB));
    _exit(heap::is_valid() ? 0 : 3);
  }
  int status = -1;
  EXPECT_EQ(test::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  step = 2;
  other.join();
}

}  // namespace
}  // namespace loam
