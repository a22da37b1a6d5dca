// Tests the model of bench/cores by sequences whose counts are known.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "directory.h"
#include "lock_finder.h"
#include "scheduler.h"

namespace cores {
namespace {

constexpr uintptr_t kA = 0x10000, kB = kA + kLine;

TEST(Directory, ALineOfOneCoreNeverMoves) {
  Directory d;
  EXPECT_EQ(d.read(0, kA), Outcome::kCold);
  EXPECT_EQ(d.write(0, kA), Outcome::kHit);  // exclusive becomes modified without traffic
  EXPECT_EQ(d.read(0, kA + kLine - 1), Outcome::kHit);
  EXPECT_EQ(d.write(1, kB), Outcome::kCold);
}

TEST(Directory, AModifiedLineMovesToItsReaderAndStaysThere) {
  Directory d;
  d.write(0, kA);
  EXPECT_EQ(d.read(1, kA), Outcome::kReadMoved);
  EXPECT_EQ(d.read(1, kA), Outcome::kHit);
  EXPECT_EQ(d.read(0, kA), Outcome::kHit);   // both cores have the line now
  EXPECT_EQ(d.read(2, kA), Outcome::kCold);  // clean: memory has the content too
}

TEST(Directory, AWriteInvalidatesEveryCopy) {
  Directory d;
  d.write(0, kA);
  d.read(1, kA);
  d.read(2, kA);
  EXPECT_EQ(d.write(1, kA), Outcome::kInvalidated);
  EXPECT_EQ(d.write(1, kA), Outcome::kHit);
  EXPECT_EQ(d.read(0, kA), Outcome::kReadMoved);
  EXPECT_EQ(d.write(2, kA),
            Outcome::kInvalidated);  // its own copy was invalid, those of 0 and 1 clean
  EXPECT_EQ(d.write(0, kA), Outcome::kWriteMoved);
}

TEST(Directory, TwoCountersInOneLineMoveAtEveryTurnAndInTwoLinesNever) {
  const auto moves = [](uintptr_t other) {
    Directory d;
    unsigned count = 0;
    for (unsigned i = 0; i < 1000; ++i) {
      count += d.write(0, kA) > Outcome::kCold;
      count += d.write(1, other) > Outcome::kCold;
    }
    return count;
  };
  EXPECT_EQ(moves(kA + 8), 1999u);
  EXPECT_EQ(moves(kB), 0u);
}

TEST(Directory, DroppedMemoryIsInNoCache) {
  Directory d;
  const uintptr_t next_page = kA + 4096;
  d.write(0, kA);
  d.write(0, next_page);
  d.drop(kA, 4096);
  EXPECT_EQ(d.read(1, kA), Outcome::kCold);
  EXPECT_EQ(d.read(1, next_page), Outcome::kReadMoved);
}

TEST(LockFinder, FindsALockByWhatTheWordWas) {
  LockFinder locks;
  EXPECT_FALSE(locks.change(0, kA, 0, 1, true, false).section);
  EXPECT_FALSE(locks.change(1, kA, 1, 1, true, false).section);  // the lock is held
  EXPECT_FALSE(locks.change(1, kA, 1, 2, true, false).section);  // the same core continues to wait
  const LockFinder::Ended ended = locks.change(0, kA, 2, 0, false, true);
  EXPECT_TRUE(ended.section);
  EXPECT_EQ(ended.collisions, 1u);
  locks.change(1, kA, 0, 2, true, false);
  EXPECT_EQ(locks.change(1, kA, 2, 0, false, true).collisions, 0u);
}

TEST(LockFinder, AListIsNoLock) {
  LockFinder lists;
  EXPECT_FALSE(lists.change(0, kA, 0, 0x1000, false, true).section);  // pushed
  EXPECT_FALSE(lists.change(0, kA, 0x1000, 0, true, false).section);  // taken
  EXPECT_FALSE(lists.change(0, kA, 0, 0x2000, false, true).section);
}

// The order of turns, with one letter for each step of a thread.
std::vector<unsigned> order_of_steps(uint64_t seed) {
  std::vector<unsigned> order;
  Scheduler scheduler(3, 4, seed);
  uint32_t gate = 0;
  scheduler.run(
      [&](unsigned me) {
        for (int i = 0; i < 100; ++i) {
          scheduler.step(me);
          order.push_back(me);
          if (me == 0 && i == 50) gate = 1;
          if (me == 1 && i == 50) {
            while (gate == 0) scheduler.wait_while_equal(me, &gate, 0);
          }
        }
      },
      [] {});
  return order;
}

TEST(Scheduler, OneSeedGivesOneOrderAndEveryThreadEnds) {
  const std::vector<unsigned> first = order_of_steps(1);
  EXPECT_EQ(first.size(), 300u);
  EXPECT_EQ(order_of_steps(1), first);
  EXPECT_NE(order_of_steps(2), first);
}

}  // namespace
}  // namespace cores
