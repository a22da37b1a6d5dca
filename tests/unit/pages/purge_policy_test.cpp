// The purge policy, driven through hours.
#include "pages/purge_policy.h"

#include <algorithm>
#include <deque>

#include <gtest/gtest.h>

#include "random.h"

namespace loam {
namespace {

constexpr uint64_t kStart = 1'000'000;
constexpr uint64_t kSecond = 1000;
constexpr auto kRate = static_cast<uint64_t>(PurgePolicy::kPagesPerSecond);
constexpr auto kCap = static_cast<uint64_t>(PurgePolicy::kBudgetCap);
// The window slides by sixteenths, so a peak counts for at least this long.
constexpr uint64_t kHeldSurely = PurgePolicy::kHoldMs - PurgePolicy::kHoldMs / 16;

/// The pages that may be purged outside the budget.
Pages idle(PurgePolicy& policy, uint64_t now, size_t used, size_t dirty) {
  const auto decision = policy.decide(now, Pages(used), Pages(dirty));
  return decision.idle + decision.fall;
}

TEST(PurgePolicy, WithinTheFloorNothingGoes) {
  PurgePolicy policy;
  for (uint64_t t = kStart; t < kStart + 100 * kSecond; t += 100) {
    const auto decision = policy.decide(t, Pages(1000), PurgePolicy::kFloor);
    ASSERT_EQ(decision.idle.count, 0u);
    ASSERT_EQ(decision.young.count, 0u);
  }
  EXPECT_EQ(idle(policy, kStart + 101 * kSecond, 1000, PurgePolicy::kFloor.count + 5).count, 5u);
}

// The window of the latest peak slides by sixteenths of the hold.
constexpr uint64_t kSlot = PurgePolicy::kHoldMs / 16;

TEST(PurgePolicy, AFallGoesAtOnceUntilItCameBack) {
  PurgePolicy policy;
  ASSERT_EQ(policy.decide(kStart, Pages(10'000), Pages(0)).fall.count, 0u);
  // At the same moment, as there may be no further call.
  const Pages gone = policy.decide(kStart, Pages(100), Pages(9'900)).fall;
  EXPECT_GE(gone.count, 9'900 - PurgePolicy::kFallFloor.count);
  EXPECT_LT(gone.count, 9'900u);
  policy.give_back(gone);
  EXPECT_EQ(policy.decide(kStart, Pages(100), Pages(9'900) - gone).fall.count, 0u);
  // It comes back, and then it is waited for.
  static_cast<void>(policy.decide(kStart + 10, Pages(10'000), Pages(0)));
  EXPECT_EQ(policy.decide(kStart + 20, Pages(100), Pages(9'900)).fall.count, 0u);
}

TEST(PurgePolicy, WhatLiesFreeWhileUseDoesNotFallIsLeftToTheBudget) {
  PurgePolicy policy;
  for (uint64_t t = kStart; t < kStart + 100; ++t) {
    ASSERT_EQ(policy.decide(t, Pages(10'000), Pages(9'000)).fall.count, 0u);
    ASSERT_EQ(policy.decide(t, Pages(9'800), Pages(9'200)).fall.count, 0u);
  }
}

/// Drives a peak of `high` for a moment and then `low` for `gap_ms`. True if a page of the peak
/// could have been purged meanwhile.
bool loses_a_round(PurgePolicy& policy, uint64_t* t, size_t high, size_t low, uint64_t gap_ms) {
  for (uint64_t end = *t + 100; *t < end; *t += 20)
    static_cast<void>(policy.decide(*t, Pages(high), Pages(0)));
  bool loses = false;
  for (uint64_t end = *t + gap_ms; *t < end; *t += 20)
    loses |= idle(policy, *t, low, high - low) != Pages(0);
  return loses;
}

TEST(PurgePolicy, APeakThatCameBackIsKept) {
  for (uint64_t gap = 100; gap < PurgePolicy::kHoldMs - 2 * kSlot; gap += 150) {
    PurgePolicy policy;
    uint64_t t = kStart;
    int lost = 0;
    for (int round = 0; round < 50; ++round) lost += loses_a_round(policy, &t, 50'000, 100, gap);
    EXPECT_LE(lost, 1) << gap;
    EXPECT_TRUE(lost == 1 || gap <= PurgePolicy::kSoonMs) << gap;
  }
}

TEST(PurgePolicy, RoundsThatAreLongerThanTheHoldAreNotWaitedFor) {
  PurgePolicy policy;
  uint64_t t = kStart;
  for (int round = 0; round < 5; ++round)
    EXPECT_TRUE(loses_a_round(policy, &t, 50'000, 100, PurgePolicy::kHoldMs + kSecond)) << round;
}

// Rounds without a silence, however long, say nothing of what comes back after one.
TEST(PurgePolicy, ASilenceKeepsWhatCameBackAfterOne) {
  for (const bool is_silent : {false, true}) {
    for (uint64_t gap = PurgePolicy::kSilenceMs; gap < PurgePolicy::kHoldMs - 2 * kSlot;
         gap += 50) {
      PurgePolicy policy;
      uint64_t t = kStart;
      for (int round = 0; round < 6; ++round) {
        for (uint64_t end = t + 100; t < end; t += 20)
          static_cast<void>(policy.decide(t, Pages(50'000), Pages(0)));
        // The last decision before the silence is that of the fall.
        static_cast<void>(policy.decide(t, Pages(100), Pages(49'900)));
        for (uint64_t end = t + gap; !is_silent && t < end; t += 20)
          static_cast<void>(policy.decide(t, Pages(100), Pages(49'900)));
        if (round == 5) break;
        if (is_silent) t += gap;
      }
      static_cast<void>(policy.decide(t, Pages(50'000), Pages(0)));
      static_cast<void>(policy.decide(t, Pages(100), Pages(49'900)));
      EXPECT_EQ(policy.to_silence_ms(t), PurgePolicy::kSilenceMs);
      t += PurgePolicy::kSilenceMs;
      EXPECT_EQ(policy.to_silence_ms(t), 0u);
      static_cast<void>(policy.decide(t, Pages(100), Pages(49'900)));
      EXPECT_EQ(policy.slow_returns(Pages(100)).count, is_silent ? 49'900u : 0u) << gap;
      t += PurgePolicy::kHoldMs;
      static_cast<void>(policy.decide(t, Pages(100), Pages(49'900)));
      EXPECT_EQ(policy.slow_returns(Pages(100)).count, 0u) << gap;
    }
  }
}

TEST(PurgePolicy, OnlyAsMuchIsKeptAsCameBack) {
  PurgePolicy policy;
  uint64_t t = kStart;
  for (int round = 0; round < 4; ++round)
    static_cast<void>(loses_a_round(policy, &t, 3'000, 1'000, 1500));
  // One large peak, which may never return.
  for (uint64_t end = t + 100; t < end; t += 20)
    static_cast<void>(policy.decide(t, Pages(90'000), Pages(0)));
  t += PurgePolicy::kSoonMs + kSlot;
  EXPECT_EQ(idle(policy, t, 1'000, 89'000).count, 89'000u - 2'000);
}

TEST(PurgePolicy, ASilenceForgetsWhatCameBack) {
  PurgePolicy policy;
  uint64_t t = kStart;
  for (int round = 0; round < 3; ++round)
    static_cast<void>(loses_a_round(policy, &t, 50'000, 100, 1500));
  t += 3600 * kSecond;
  EXPECT_TRUE(loses_a_round(policy, &t, 50'000, 100, 1500));
}

TEST(PurgePolicy, WhatCameBackOnceIsForgottenWhenItStaysAway) {
  PurgePolicy policy;
  uint64_t t = kStart;
  for (int round = 0; round < 3; ++round)
    static_cast<void>(loses_a_round(policy, &t, 50'000, 100, 1500));
  const uint64_t last = t;
  for (; t < last + 3 * PurgePolicy::kHoldMs; t += 100)
    static_cast<void>(idle(policy, t, 100, 49'900));
  EXPECT_TRUE(loses_a_round(policy, &t, 50'000, 100, 1500))
      << "who came back long ago is a stranger";
}

TEST(PurgePolicy, APeakBetweenTwoDecisionsCounts) {
  PurgePolicy policy;
  ASSERT_EQ(idle(policy, kStart, 10, 0).count, 0u);
  policy.observe(Pages(5000));
  EXPECT_EQ(policy.decide(kStart + 10, Pages(10), Pages(4990)).idle.count, 0u);
  EXPECT_EQ(policy.recent_peak().count, 5000u);
}

TEST(PurgePolicy, ALongSilenceForgetsEverything) {
  PurgePolicy policy;
  ASSERT_EQ(idle(policy, kStart, 100'000, 0).count, 0u);
  const uint64_t later = kStart + 3600 * kSecond;
  EXPECT_EQ(idle(policy, later, 10, 1000).count, 1000 - PurgePolicy::kFloor.count);
  EXPECT_EQ(policy.recent_peak().count, 10u);
}

TEST(PurgePolicy, OverHoursThePeakIsThatOfTheWindow) {
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  PurgePolicy policy;
  struct Seen {
    uint64_t from, to;  // in use from this decision to the next one
    size_t used;
  };
  std::deque<Seen> history;
  uint64_t t = kStart;
  size_t used = 0;
  while (t < kStart + 2 * 3600 * kSecond) {
    t += random.chance(2) ? random.below(20'000) : 1 + random.below(60);
    used = random.chance(5) ? random.below(1'000'000) : random.below(1000);
    ASSERT_LE(idle(policy, t, used, 0).count, 0u);
    if (!history.empty()) history.back().to = t;
    history.push_back({t, t, used});
    while (history.front().to + 2 * PurgePolicy::kHoldMs < t) history.pop_front();
    size_t low = 0, high = 0;
    for (const Seen& s : history) {
      if (s.from + kHeldSurely > t) low = std::max(low, s.used);
      if (s.to + PurgePolicy::kHoldMs >= t) high = std::max(high, s.used);
    }
    ASSERT_GE(policy.recent_peak().count, low) << t;
    ASSERT_LE(policy.recent_peak().count, high) << t;
  }
}

TEST(PurgePolicy, TheBudgetNeverPaysMoreThanItsRateAndItsCap) {
  test::Random random = test::seeded(2);
  LOAM_TRACE_SEED(random);
  PurgePolicy policy;
  uint64_t spent = 0, t = kStart;
  static_cast<void>(idle(policy, t, 0, 0));
  while (t < kStart + 3600 * kSecond) {
    t += random.chance(2) ? random.below(500) : random.below(30);
    const auto decision = policy.decide(t, Pages(0), Pages(1'000'000));
    const size_t young = random.below(decision.young.count + 1);
    policy.spend(Pages(young));
    spent += young;
    ASSERT_LE(spent, kCap + (t - kStart) * kRate / 1000);
  }
  EXPECT_GT(spent, 3600 * kRate / 4) << "a budget that pays next to nothing";
}

TEST(PurgePolicy, WhatWasSpentBeyondTheBudgetIsOwed) {
  // A run of pages is purged as a whole, so a caller may exceed the budget. The rate must hold all
  // the same.
  PurgePolicy policy;
  uint64_t spent = 0, t = kStart;
  static_cast<void>(idle(policy, t, 0, 0));
  while (t < kStart + 60 * kSecond) {
    t += 8;
    if (policy.decide(t, Pages(0), Pages(1'000'000)).young == Pages(0)) continue;
    policy.spend(Pages(kPagesPerSlab));
    spent += kPagesPerSlab;
    ASSERT_LE(spent, kCap + kPagesPerSlab + (t - kStart) * kRate / 1000);
  }
}

// The pages that the budget pays for in `seconds` seconds, each with that much running time.
size_t spent_in(PurgePolicy& policy, uint64_t seconds, uint64_t running_ms_a_second) {
  size_t spent = 0;
  uint64_t t = kStart, ran = 10 * kSecond;
  const Pages plenty(1'000'000);
  policy.spend(policy.decide(t, Pages(0), plenty, ran).young);
  while (t < kStart + seconds * kSecond) {
    t += 4;
    ran = 10 * kSecond + (t - kStart) * running_ms_a_second / 1000;
    const Pages young = policy.decide(t, Pages(0), plenty, ran).young;
    policy.spend(young);
    spent += young.count;
  }
  return spent;
}

TEST(PurgePolicy, TheBudgetIsAShareOfTheTimeThatAllThreadsRun) {
  PurgePolicy one, three, idle, many;
  const size_t batch = PurgePolicy::kBatch.count;
  EXPECT_NEAR(spent_in(one, 10, 1000), 10 * kRate, batch);
  EXPECT_NEAR(spent_in(three, 10, 3000), 3 * 10 * kRate, 2 * batch);
  EXPECT_NEAR(spent_in(idle, 10, 1), 10 * kRate, batch)
      << "who sleeps most of the time is not purged slower";
  EXPECT_NEAR(spent_in(many, 10, 100'000), PurgePolicy::kMostRunning * 10 * kRate, 8 * batch);
}

TEST(PurgePolicy, ATimeThatIsNotKnownCountsAsNone) {
  PurgePolicy policy;
  const Pages plenty(1'000'000);
  // The first reading means nothing, because the process may have run for a year.
  policy.spend(policy.decide(kStart, Pages(0), plenty, 1'000'000).young);
  EXPECT_EQ(policy.decide(kStart + 20, Pages(0), plenty, 0).young.count, kRate / 50);
  policy.spend(Pages(kRate / 50));
  EXPECT_EQ(policy.decide(kStart + 40, Pages(0), plenty, 1'000'080).young.count, 4 * kRate / 50);
  policy.spend(Pages(4 * kRate / 50));
  // A fork()ed child's clock begins anew.
  EXPECT_EQ(policy.decide(kStart + 60, Pages(0), plenty, 10).young.count, kRate / 50);
  policy.spend(Pages(kRate / 50));
  EXPECT_EQ(policy.decide(kStart + 80, Pages(0), plenty, 50).young.count, 2 * kRate / 50);
}

TEST(PurgePolicy, UnspentBudgetGathersOnlyToItsCap) {
  PurgePolicy policy;
  static_cast<void>(idle(policy, kStart, 0, 0));
  const Pages plenty(1'000'000);
  const uint64_t later = kStart + 3600 * kSecond;
  const auto decision = policy.decide(later, Pages(0), plenty);
  EXPECT_EQ(decision.young.count, kCap);
  policy.spend(decision.young);
  EXPECT_EQ(policy.decide(later, Pages(0), plenty).young.count, 0u);
  EXPECT_EQ(policy.decide(later + 20, Pages(0), plenty).young.count, kRate / 50);
}

TEST(PurgePolicy, YoungPagesGoInBatchesOrStay) {
  PurgePolicy policy;
  constexpr size_t kBatch = PurgePolicy::kBatch.count, kFloor = PurgePolicy::kFloor.count;
  static_cast<void>(idle(policy, kStart, 0, 0));
  // Too few pages are not worth a call, and become idle instead.
  const auto few = policy.decide(kStart + 10, Pages(0), Pages(kFloor + kBatch - 1));
  EXPECT_EQ(few.young.count, 0u);
  EXPECT_EQ(few.idle.count, kBatch - 1);
  EXPECT_EQ(policy.decide(kStart + 10, Pages(0), Pages(kFloor + kBatch)).young.count, kBatch);
  // A busy program's budget grows slowly, but its purges are whole batches.
  uint64_t spent = 0, t = kStart + 10;
  const uint64_t end = t + 10 * kSecond;
  for (; t < end; t += 4) {
    const Pages young = policy.decide(t, Pages(0), Pages(1'000'000)).young;
    ASSERT_TRUE(young == Pages(0) || young >= PurgePolicy::kBatch) << young.count;
    policy.spend(young);
    spent += young.count;
  }
  EXPECT_GE(spent, 10 * kRate) << "the rate is the same";
}

TEST(PurgePolicy, IdleIsAMomentAgo) {
  PurgePolicy policy;
  EXPECT_EQ(policy.decide(kStart, Pages(0), Pages(0)).idle_before_ms,
            kStart - PurgePolicy::kSoonMs);
  PurgePolicy young;
  EXPECT_EQ(young.decide(5, Pages(0), Pages(0)).idle_before_ms, 0u) << "the clock has just begun";
}

}  // namespace
}  // namespace loam
