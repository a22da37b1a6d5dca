#include "os/mutex.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace loam {
namespace {

TEST(Mutex, OnlyOneThreadIsInside) {
  Mutex mutex;
  uint64_t counter = 0;  // not atomic on purpose: only the lock protects it
  constexpr int kThreads = 4, kRounds = 20'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        Lock lock(mutex);
        ++counter;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter, uint64_t{kThreads} * kRounds);
  EXPECT_EQ(mutex.acquisitions(), uint64_t{kThreads} * kRounds);
  EXPECT_LE(mutex.contentions(), mutex.acquisitions());
  EXPECT_FALSE(mutex.is_locked());
}

TEST(Mutex, SleepersAreWokenOneAfterTheOther) {
  Mutex mutex;
  int inside = 0;
  mutex.lock();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Lock lock(mutex);
      ++inside;
    });
  }
  // Long enough that all of them have stopped spinning and sleep in the kernel.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(inside, 0);
  mutex.unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(inside, 4);
  EXPECT_EQ(mutex.contentions(), 4u);
}

TEST(Mutex, TryingAHeldLockIsRefusedAndCounted) {
  Mutex mutex;
  EXPECT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  EXPECT_EQ(mutex.refusals(), 1u);
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
  EXPECT_EQ(mutex.acquisitions(), 2u);
  EXPECT_EQ(mutex.contentions(), 0u);
}

TEST(Mutex, AfterAForkItIsFreeWhateverItWas) {
  Mutex mutex;
  mutex.lock();
  mutex.reset_after_fork();
  EXPECT_FALSE(mutex.is_locked());
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace loam
