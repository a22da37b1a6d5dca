// When a thread looks at a fall, and what it decides, by numbers alone.
#include "cache/thread_fall.h"

#include <gtest/gtest.h>

namespace loam {
namespace {

constexpr size_t kMega = size_t{1} << 20;

// A look at a heap that used `before` bytes at the look before.
ThreadFall::Decision after(size_t before, const ThreadFall::Look& look) {
  ThreadFall fall;
  static_cast<void>(fall.decide({.used = before,
                                 .free = 0,
                                 .fallen = 0,
                                 .returned = 0,
                                 .cached = 0,
                                 .threads = look.threads}));
  return fall.decide(look);
}

TEST(ThreadFall, ALookComesWhenMuchMoreWasGivenThanTaken) {
  ThreadFall fall;
  for (int round = 0; round < 100; ++round) {
    ASSERT_FALSE(fall.note_given(ThreadFall::kFallStep / 2)) << "and taken again";
    fall.note_taken(ThreadFall::kFallStep / 2);
  }
  EXPECT_FALSE(fall.note_given(ThreadFall::kFallStep - 1));
  EXPECT_TRUE(fall.note_given(1));
  fall.begin();
  EXPECT_FALSE(fall.note_given(ThreadFall::kFallStep - 1));
}

TEST(ThreadFall, TheStepFollowsTheHeapAndTheThreads) {
  const auto step = [](size_t used, size_t threads) {
    ThreadFall fall;
    static_cast<void>(fall.decide(
        {.used = used, .free = 0, .fallen = 0, .returned = 0, .cached = 0, .threads = threads}));
    size_t bytes = 0;
    do {
      bytes += 4096;
    } while (!fall.note_given(4096));
    return bytes;
  };
  EXPECT_EQ(step(8 * kMega, 1), ThreadFall::kFallStep);
  EXPECT_EQ(step(320 * kMega, 1), 10 * kMega);
  EXPECT_EQ(step(320 * kMega, 5), 2 * kMega);
  EXPECT_EQ(step(8 * kMega, 101), ThreadFall::kLeastFallStep);
}

TEST(ThreadFall, WhatStaysWithinTheBoundIsLeftAlone) {
  // A sixteenth of 100 MiB is 6.25 MiB.
  const auto decision = after(120 * kMega, {.used = 100 * kMega,
                                            .free = 5 * kMega,
                                            .fallen = 20 * kMega,
                                            .returned = 0,
                                            .cached = kMega,
                                            .threads = 1});
  EXPECT_FALSE(decision.shortens);
  EXPECT_FALSE(decision.purges);
}

TEST(ThreadFall, FreePagesInSpansGoBack) {
  const auto decision = after(120 * kMega, {.used = 100 * kMega,
                                            .free = 8 * kMega,
                                            .fallen = 20 * kMega,
                                            .returned = 0,
                                            .cached = 0,
                                            .threads = 1});
  EXPECT_TRUE(decision.purges);
  EXPECT_TRUE(decision.shortens);
  EXPECT_EQ(decision.keep, 100 * kMega / 16);
}

TEST(ThreadFall, CachedBlocksCountWhileUseFalls) {
  const ThreadFall::Look look{.used = 100 * kMega,
                              .free = 4 * kMega,
                              .fallen = 20 * kMega,
                              .returned = 0,
                              .cached = 4 * kMega,
                              .threads = 1};
  const auto falls = after(120 * kMega, look);
  EXPECT_TRUE(falls.shortens);
  EXPECT_FALSE(falls.purges) << "the magazines alone hold too much";
  EXPECT_FALSE(after(100 * kMega, look).shortens) << "others take what this thread frees";
}

TEST(ThreadFall, WhatCameBackBeforeIsHeldByAThreadThatCameBackItself) {
  const ThreadFall::Look look{.used = 100 * kMega,
                              .free = 20 * kMega,
                              .fallen = 8 * kMega,
                              .returned = 8 * kMega,
                              .cached = 0,
                              .threads = 1};
  ThreadFall fall;
  const auto others = fall.decide(look);
  EXPECT_TRUE(others.is_held);
  EXPECT_TRUE(others.shortens) << "others may have come back";
  EXPECT_FALSE(others.purges);
  fall.shorten();
  for (uint32_t i = 0; i < ThreadFall::kRefillsToGrow; ++i) fall.note_taken(64);
  const auto own = fall.decide(look);
  EXPECT_TRUE(own.is_held);
  EXPECT_FALSE(own.shortens);
}

TEST(ThreadFall, MagazinesStayShortUntilTheThreadTakesAgain) {
  ThreadFall fall;
  EXPECT_FALSE(fall.is_short());
  fall.shorten();
  for (uint32_t i = 0; i < ThreadFall::kRefillsToGrow; ++i) {
    ASSERT_TRUE(fall.is_short()) << i;
    fall.note_taken(64);
  }
  EXPECT_FALSE(fall.is_short());
}

}  // namespace
}  // namespace loam
