// The size of a thread's magazines while it rarely misses.
#include "cache/miss_rate.h"

#include <algorithm>
#include <vector>

#include "cache/thread_cache_fixture.h"
#include "fake_system/fake.h"  // which system the test is built with
#include "random.h"

namespace loam {
namespace {

using namespace test;  // contents of the fixture

constexpr size_t kUnearnedBytes = CacheBudget::kUnearnedBytes;

TEST(MissRate, IsLowWhereManyFreesPassBetweenSlowOperations) {
  MissRate rate;
  EXPECT_FALSE(rate.is_low()) << "who begins may grow";
  uint64_t frees = 0;
  const auto note = [&](unsigned count, uint64_t apart) {
    for (; count != 0; --count) rate.note_slow_operation(frees += apart);
  };
  note(100, MissRate::kRare - 4);
  EXPECT_FALSE(rate.is_low());
  note(100, MissRate::kRare + 4);
  EXPECT_TRUE(rate.is_low());
  note(100, 0);  // a thread that only allocates
  EXPECT_FALSE(rate.is_low());
  note(20, uint64_t{1} << 40);
  EXPECT_TRUE(rate.is_low());
  note(8, 1);
  EXPECT_FALSE(rate.is_low()) << "a rest is not remembered for long";
}

TEST_F(ThreadCacheTest, AThreadThatSeldomMissesGivesBackWhatItNeededOnce) {
  in_thread([] {
    static_cast<void>(slow_in_turn(kManyClasses, 40));
    ASSERT_GT(current_cache->held_bytes(), kUnearnedBytes + kFirstSlotsBytes);
    // Every class is in use with one block, so none of them rests.
    const uint64_t slow = current_cache->refills() + current_cache->flushes();
    for (int round = 0; round < 10'000; ++round) {
      for (unsigned c = class_for(528); c < class_for(528) + kManyClasses; ++c)
        release(allocate(c));
    }
    EXPECT_LE(current_cache->held_bytes(), kUnearnedBytes + kFirstSlotsBytes);
    EXPECT_LE(current_cache->refills() + current_cache->flushes() - slow, kManyClasses)
        << "and misses no more for it";
  });
}

TEST_F(ThreadCacheTest, AThreadThatSeldomMissesGrowsNoFurther) {
  in_thread([] {
    // Enough hits before each call that may be slow to make slow calls rare. All of them together
    // are too few for a collection.
    const auto hit = [] {
      for (unsigned i = 0; i < MissRate::kRare + 2; ++i) release(allocate(8));
    };
    size_t most = 0;
    for (unsigned c = class_for(2064); c < class_for(2064) + 20; ++c) {
      std::vector<void*> blocks;
      for (unsigned i = 0; i < kClassBytes * 3 / 4 / kSizeClasses[c].bytes; ++i) {
        if (current_cache->held_blocks(c) == 0) hit();
        blocks.push_back(allocate(c));
      }
      for (void* block : blocks) {
        hit();
        release(block);
      }
      most = std::max(most, current_cache->held_bytes());
    }
    EXPECT_LE(most, kUnearnedBytes + kFirstSlotsBytes);
    ASSERT_LT(current_cache->pushed(), 32768u);
    EXPECT_GT(most, kUnearnedBytes / 2) << "up to there it does";
  });
}

TEST_F(ThreadCacheTest, AThreadThatHoldsLittleGivesBackWhatRestsToo) {
  in_thread([] {
    const unsigned busy = class_for(16), classes = class_for(1024);
    for (unsigned c = busy + 1; c < classes; ++c) release(allocate(c));
    const size_t held = current_cache->held_bytes();
    ASSERT_GT(held, size_t{16} << 10);
    ASSERT_LT(held, kUnearnedBytes);
    for (int i = 0; i < 3 * 65'536; ++i) release(allocate(busy));  // and every call hits
    EXPECT_LT(current_cache->held_bytes(), held / 16);
  });
}

// The first slots of all classes are more than kUnearnedBytes.
TEST_F(ThreadCacheTest, AThreadThatUsesEveryClassAtRandomSeldomMisses) {
  in_thread([] {
    auto random = test::seeded(7);
    struct Block {
      void* address;
      unsigned size_class;
    };
    std::vector<Block> blocks(1024);
    const auto replace = [&](Block* block) {
      if (block->address != nullptr) release(block->address);
      // Small blocks are more frequent than large ones, as in programs: by the square root of the
      // length.
      const double root =
          0.006 + 0.494 * static_cast<double>(1 + random.below(1 << 20)) / (1 << 20);
      block->size_class = class_for(static_cast<size_t>(1 / (root * root)));
      block->address = allocate(block->size_class);
    };
    for (int i = 0; i < 200'000; ++i) replace(&blocks[random.below(blocks.size())]);
    const uint64_t slow = current_cache->refills() + current_cache->flushes();
    constexpr uint64_t kTimes = 500'000;
    for (uint64_t i = 0; i < kTimes; ++i) replace(&blocks[random.below(blocks.size())]);
    EXPECT_LT(current_cache->refills() + current_cache->flushes() - slow, kTimes / 120);
    for (const Block& block : blocks) {
      if (block.address != nullptr) release(block.address);
    }
  });
}

}  // namespace
}  // namespace loam
