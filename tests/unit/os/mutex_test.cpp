#include "os/mutex.h"

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "this_process.h"

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
  if (!test::kTellsSleep) GTEST_SKIP() << "the system does not tell whether a thread sleeps";
  constexpr int kThreads = 4;
  Mutex mutex;
  int inside = 0;
  std::atomic<long> numbers[kThreads] = {};
  std::atomic<int> ended{0};
  mutex.lock();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      numbers[t] = test::this_thread();
      {
        Lock lock(mutex);
        ++inside;
      }
      ++ended;
    });
  }
  // After a thread has its number, it only requests the lock. So a sleeping thread has stopped
  // spinning, and sleeps for the lock.
  for (const std::atomic<long>& number : numbers) {
    while (ended == 0 && (number == 0 || !test::sleeps(number))) std::this_thread::yield();
  }
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(inside, 0);
  mutex.unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(inside, kThreads);
  EXPECT_EQ(mutex.contentions(), uint64_t{kThreads});
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

/// Declares, for a scope, that the process has one thread.
class SingleThread {
 public:
  SingleThread() : before_(os::single_thread_flag) { os::single_thread_flag = &flag_; }
  ~SingleThread() { os::single_thread_flag = before_; }
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;

  /// Does what pthread_create() does.
  void end() { flag_ = 0; }

 private:
  char flag_ = 1;
  const char* before_;
};

TEST(Mutex, WithOneThreadItSaysTheSame) {
  SingleThread single;
  ASSERT_TRUE(os::is_single_threaded());
  Mutex mutex;
  mutex.lock();
  EXPECT_TRUE(mutex.is_locked());
  EXPECT_FALSE(mutex.try_lock());
  EXPECT_EQ(mutex.refusals(), 1u);
  mutex.unlock();
  EXPECT_FALSE(mutex.is_locked());
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
  EXPECT_EQ(mutex.acquisitions(), 2u);
  EXPECT_EQ(mutex.contentions(), 0u);
}

TEST(Mutex, ASecondThreadMayStartWhileTheFirstIsInside) {
  if (!test::kTellsSleep) GTEST_SKIP() << "the system does not tell whether a thread sleeps";
  SingleThread single;
  Mutex mutex;
  mutex.lock();
  single.end();
  std::atomic<long> number{0};
  std::atomic<bool> inside{false};
  std::thread thread([&] {
    number = test::this_thread();
    Lock lock(mutex);
    inside = true;
  });
  while (!inside && (number == 0 || !test::sleeps(number))) std::this_thread::yield();
  EXPECT_FALSE(inside);
  mutex.unlock();
  thread.join();
  EXPECT_TRUE(inside);
  EXPECT_EQ(mutex.contentions(), 1u);
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
