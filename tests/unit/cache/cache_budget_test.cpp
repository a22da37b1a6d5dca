// How much a thread's magazines may hold, by numbers alone.
#include "cache/cache_budget.h"

#include <gtest/gtest.h>

namespace loam {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSmallProgram = 4 * kMiB;
constexpr size_t kLargeProgram = 1024 * kMiB;
constexpr bool kTurned = true;

// A budget that holds `granted` bytes beyond first slots.
CacheBudget holding(size_t granted) {
  CacheBudget budget;
  budget.take({.capacity = 1,
               .first = false,
               .due = 0,
               .more = granted,
               .shared = granted,
               .is_long = false});
  return budget;
}

// The capacities through which a magazine goes that is too short again and again.
unsigned longest(const CacheBudget& budget, size_t block_bytes, bool turned, size_t heap_bytes) {
  unsigned capacity = 0;
  while (const unsigned next = budget.next(block_bytes, capacity, turned, heap_bytes).capacity)
    capacity = next;
  return capacity;
}

void make_misses_rare(CacheBudget& budget, uint64_t* frees) {
  for (int i = 0; i < 100; ++i)
    static_cast<void>(budget.note_slow_operation(*frees += 2 * MissRate::kRare));
}

TEST(CacheBudget, AMagazineDoublesUntilItHoldsItsShareOfBytes) {
  const CacheBudget budget;
  EXPECT_EQ(budget.next(64, 0, false, kSmallProgram).capacity, magazine_policy::kInitialSlots);
  EXPECT_EQ(budget.next(64, 8, false, kSmallProgram).capacity, 16u);
  EXPECT_EQ(longest(budget, 64, kTurned, kSmallProgram), magazine_policy::kMaxCapacity);
  EXPECT_EQ(longest(budget, 64, false, kSmallProgram), magazine_policy::one_way_capacity(64));
  EXPECT_EQ(longest(budget, 1024, false, kSmallProgram), (32u << 10) / 1024);
  EXPECT_EQ(longest(budget, 1024, false, kLargeProgram), 512u) << "a 1,024th of the heap";
  EXPECT_EQ(longest(budget, 8192, false, kLargeProgram), magazine_policy::usual_capacity(8192));
  EXPECT_EQ(longest(budget, kLargestSmall, false, kSmallProgram), magazine_policy::kFewSlots);
  EXPECT_EQ(longest(budget, kLargestSmall, kTurned, kSmallProgram), magazine_policy::kMaxCapacity);
}

TEST(CacheBudget, KnowsTheLongestOfTheLongMagazines) {
  const unsigned small = class_for(64), large = class_for(8192), end = large + 1;
  Tuning tuning[kMagazineCount] = {};
  tuning[small].set_capacity(magazine_policy::usual_capacity(64));
  tuning[large].set_capacity(magazine_policy::usual_capacity(8192));
  CacheBudget budget;
  const auto grow = [&](unsigned c) {
    const CacheBudget::Growth growth =
        budget.next(block_bytes(c), tuning[c].capacity, kTurned, kLargeProgram);
    budget.take(growth);
    tuning[c].set_capacity(growth.capacity);
    return growth.is_long;
  };
  EXPECT_EQ(budget.longest(tuning, end), 0u) << "none is long";
  EXPECT_TRUE(grow(small));
  EXPECT_EQ(budget.longest(tuning, end), small);
  EXPECT_TRUE(grow(large));
  EXPECT_EQ(budget.longest(tuning, end), large) << "by bytes";
  tuning[large].set_capacity(magazine_policy::usual_capacity(8192));
  EXPECT_EQ(budget.longest(tuning, end), small);
  tuning[small].set_capacity(magazine_policy::usual_capacity(64));
  EXPECT_EQ(budget.longest(tuning, end), 0u);
}

TEST(CacheBudget, FirstSlotsOfLargeBlocksAreEveryThreadsDue) {
  CacheBudget budget;
  EXPECT_EQ(budget.next(64, 0, false, kSmallProgram).bytes(), 0u) << "too small to matter";
  size_t due = 0;
  while (due < CacheBudget::kDue) {
    const CacheBudget::Growth growth = budget.next(32768, 0, false, kSmallProgram);
    ASSERT_EQ(growth.due, 2u * 32768);
    ASSERT_EQ(growth.shared, 0u) << due;
    budget.take(growth);
    due += growth.due;
  }
  const CacheBudget::Growth beyond = budget.next(32768, 0, false, kSmallProgram);
  EXPECT_EQ(beyond.shared, beyond.due);
  budget.take(beyond);
  EXPECT_EQ(budget.shared(), beyond.due);
  EXPECT_EQ(budget.give_due(beyond.due), beyond.due) << "goes back to all threads";
  EXPECT_EQ(budget.give_due(due), 0u);
}

TEST(CacheBudget, WhatIsGrantedComesOutOfTheRoomOfAll) {
  CacheBudget budget;
  const CacheBudget::Growth growth = budget.next(512, 8, kTurned, kSmallProgram);
  EXPECT_EQ(growth.more, 8u * 512);
  EXPECT_EQ(growth.shared, growth.more);
  budget.take(growth);
  EXPECT_EQ(budget.give(growth.more), growth.more);
  EXPECT_EQ(budget.shared(), 0u);
  budget.take(growth);
  EXPECT_EQ(budget.give_all(), growth.more);
  EXPECT_EQ(budget.shared(), 0u);
}

TEST(CacheBudget, AThreadHoldsItsPartOfWhatAllMayAndTwoMiBAtLeast) {
  CacheBudget budget = holding(kProcessBytes);
  EXPECT_TRUE(budget.has_room(0, kSmallProgram, 1));
  EXPECT_FALSE(budget.has_room(1, kSmallProgram, 1));
  EXPECT_EQ(CacheBudget::most(kSmallProgram, 1), kProcessBytes);
  EXPECT_EQ(CacheBudget::most(kSmallProgram, 4), kProcessBytes / 4);
  EXPECT_EQ(CacheBudget::most(kSmallProgram, 100), CacheBudget::kThreadBytes);
  EXPECT_EQ(CacheBudget::most(kLargeProgram, 1), kLargeProgram / kProcessShare);
}

TEST(CacheBudget, BeyondTheUnearnedBytesAMagazineGrowsOnlyWhileMissesAreFrequent) {
  uint64_t frees = 0;
  CacheBudget much = holding(CacheBudget::kUnearnedBytes);
  EXPECT_NE(much.next(2048, 32, kTurned, kSmallProgram).capacity, 0u) << "a beginner may";
  make_misses_rare(much, &frees);
  EXPECT_EQ(much.next(2048, 32, kTurned, kSmallProgram).capacity, 0u);
  EXPECT_NE(much.next(2048, 32, kTurned, kLargeProgram).capacity, 0u) << "a 32nd of the heap";
  EXPECT_NE(much.next(2048, 0, kTurned, kSmallProgram).capacity, 0u) << "first slots";
  EXPECT_EQ(much.next(64, 64, kTurned, kSmallProgram).capacity, 128u)
      << "8 KiB are everybody's (decision 51)";
  EXPECT_EQ(much.next(64, 128, kTurned, kSmallProgram).capacity, 0u);

  CacheBudget little = holding(CacheBudget::kUnearnedBytes / 2);
  make_misses_rare(little, &(frees = 0));
  EXPECT_NE(little.next(2048, 32, kTurned, kSmallProgram).capacity, 0u);
}

TEST(CacheBudget, ACollectionComesAfterSlowOperationsOrFrees) {
  CacheBudget budget;
  uint64_t frees = 1000;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 1; i < CacheBudget::kCollectEvery; ++i)
      ASSERT_FALSE(budget.note_slow_operation(++frees));
    ASSERT_TRUE(budget.note_slow_operation(++frees));
    budget.begin_collection(frees);
  }
  EXPECT_EQ(budget.since_collection(frees + 5), 5u);
  EXPECT_FALSE(budget.collects_after(CacheBudget::kCollectUnearnedFrees - 1, kSmallProgram));
  EXPECT_TRUE(budget.collects_after(CacheBudget::kCollectUnearnedFrees, kSmallProgram));
  budget = holding(CacheBudget::kUnearnedBytes + 1);
  EXPECT_FALSE(budget.collects_after(CacheBudget::kCollectFrees - 1, kSmallProgram));
  EXPECT_TRUE(budget.collects_after(CacheBudget::kCollectFrees, kSmallProgram));
}

TEST(CacheBudget, AMagazineThatShrinksKeepsItsFirstSlots) {
  const auto shrink = [](unsigned capacity, unsigned held) {
    const auto [next, gone] = CacheBudget::shrink(capacity, 8, held);
    EXPECT_LE(held - gone, next);
    return next;
  };
  EXPECT_EQ(shrink(64, 64), 32u);
  EXPECT_EQ(shrink(64, 0), 32u);
  EXPECT_EQ(shrink(12, 12), 8u);
  EXPECT_EQ(CacheBudget::shrink(64, 8, 1).gone, 0u) << "a single block stays";
  EXPECT_EQ(CacheBudget::shrink(64, 8, 20).gone, 10u);
}

class BudgetOfClasses : public ::testing::Test {
 protected:
  static constexpr unsigned kEnd = kSizeClassCount;
  void SetUp() override {
    for (Tuning& t : tuning) t = Tuning{};
  }
  void set(unsigned size_class, unsigned capacity, Use use) {
    tuning[size_class].set_capacity(capacity);
    tuning[size_class].use = use;
  }
  // As far into the time between two collections as a search for an idle class needs.
  static CacheBudget late() {
    CacheBudget budget;
    for (uint32_t i = 0; i < CacheBudget::kIdleAfter; ++i)
      static_cast<void>(budget.note_slow_operation(0));
    return budget;
  }
  Tuning tuning[kEnd];
};

TEST_F(BudgetOfClasses, TheLargestOtherMagazineMakesWay) {
  EXPECT_EQ(CacheBudget::largest_other(tuning, kEnd, 0), 0u);
  const unsigned small = class_for(64), middle = class_for(1024), large = class_for(16384);
  set(small, 64, Use::kHit);
  set(middle, 32, Use::kHit);
  set(large, 2, Use::kHit);  // its first slots alone
  EXPECT_EQ(CacheBudget::largest_other(tuning, kEnd, small), middle);
  EXPECT_EQ(CacheBudget::largest_other(tuning, kEnd, middle), small);
  set(large, 4, Use::kHit);
  EXPECT_EQ(CacheBudget::largest_other(tuning, kEnd, small), large);
}

TEST_F(BudgetOfClasses, ASearchForAnIdleClassGoesOnWhereItEnded) {
  const unsigned first = 3, second = first + CacheBudget::kLooksForIdle;
  set(first, 64, Use::kNone);
  set(first + 1, 64, Use::kHit);
  set(first + 2, initial_capacity(first + 2), Use::kNone);  // nothing to give
  set(second, 64, Use::kNone);
  EXPECT_EQ(CacheBudget().next_idle(tuning, kEnd), 0u) << "too early after a collection";
  CacheBudget budget = late();
  EXPECT_EQ(budget.next_idle(tuning, kEnd), first);
  EXPECT_EQ(budget.next_idle(tuning, kEnd), second) << "eight looks";
  EXPECT_EQ(budget.next_idle(tuning, kEnd), 0u);
  unsigned again = 0;
  for (unsigned looks = 0; looks < kEnd && again == 0; looks += CacheBudget::kLooksForIdle)
    again = budget.next_idle(tuning, kEnd);
  EXPECT_EQ(again, first) << "after the last class comes the first";
}

}  // namespace
}  // namespace loam
