#include "base/shared_room.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace loam {
namespace {

TEST(SharedRoom, ASmallHeapHasTheFloor) {
  SharedRoom<1000, 32> room;
  EXPECT_TRUE(room.take(600, 0));
  EXPECT_FALSE(room.take(401, 31'999)) << "a share of less than the floor";
  EXPECT_EQ(room.held(), 600u) << "what was refused is not counted";
  EXPECT_TRUE(room.take(400, 31'999));
  EXPECT_FALSE(room.take(1, 31'999));
  EXPECT_TRUE(room.take(0, 0));
}

TEST(SharedRoom, ALargeHeapHasItsShare) {
  SharedRoom<1000, 32> room;
  EXPECT_TRUE(room.take(2000, 64'000));
  EXPECT_FALSE(room.take(1, 64'031));
  EXPECT_TRUE(room.take(1, 64'032));
  // The heap shrank, so no thread gets more until enough was given back.
  EXPECT_FALSE(room.take(1, 32'000));
  room.give(1001);
  EXPECT_FALSE(room.take(1, 32'000));
  room.give(1);
  EXPECT_TRUE(room.take(1, 32'000));
  EXPECT_EQ(room.held(), 1000u);
}

TEST(SharedRoom, AForkedChildForgetsWhatNobodyHolds) {
  SharedRoom<1000, 32> room;
  ASSERT_TRUE(room.take(1000, 0));  // 300 of which were on their way to an owner
  room.recount_after_fork(700);
  EXPECT_EQ(room.held(), 700u);
  EXPECT_TRUE(room.take(300, 0));
  EXPECT_FALSE(room.take(1, 0));
}

TEST(SharedRoom, ThreadsTogetherHoldNoMoreThanTheLimitAndLoseNothing) {
  constexpr size_t kLeast = 1000;
  constexpr unsigned kThreads = 4;
  SharedRoom<kLeast, 32> room;
  std::atomic<size_t> owned{0};
  std::atomic<bool> too_much{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto random = test::seeded(t);
      for (int i = 0; i < 50'000; ++i) {
        const size_t bytes = 1 + random.below(600);
        if (!room.take(bytes, 0)) continue;
        // Counted after take() and before give(), so the count never exceeds the room.
        if (owned.fetch_add(bytes) + bytes > kLeast) too_much = true;
        owned.fetch_sub(bytes);
        room.give(bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(too_much);
  EXPECT_EQ(room.held(), 0u);
}

}  // namespace
}  // namespace loam
