// The debt of long runs, as arithmetic.
#include "pages/growth_debt.h"

#include <gtest/gtest.h>

namespace loam {
namespace {

TEST(GrowthDebt, NothingIsOwedBeforeALongRunTookSomething) {
  GrowthDebt debt;
  EXPECT_EQ(debt.owed(Pages(100)), Pages(0));
  debt.pay(Pages(0));
  debt.note_free(7);
  EXPECT_EQ(debt.owed(Pages(100)), Pages(0));
}

TEST(GrowthDebt, WhatItTookBeyondTheLevelIsOwed) {
  GrowthDebt debt;
  debt.take(Pages(30), Pages(10), {7, Pages(12)});
  EXPECT_EQ(debt.level(), Pages(20)) << "what others came up to is theirs";
  EXPECT_EQ(debt.owed(Pages(30)), Pages(10));
  EXPECT_EQ(debt.debtor().address, 7u);
  EXPECT_EQ(debt.debtor().pages, Pages(12));
}

TEST(GrowthDebt, WhatWasPaidRaisesTheLevelSoThatItIsPaidOnce) {
  GrowthDebt debt;
  debt.take(Pages(30), Pages(10), {7, Pages(12)});
  debt.pay(Pages(4));
  EXPECT_EQ(debt.owed(Pages(26)), Pages(2))
      << "six are left, but the heap is only two above its level";
  EXPECT_EQ(debt.owed(Pages(40)), Pages(6));
  debt.pay(Pages(6));
  EXPECT_EQ(debt.owed(Pages(40)), Pages(0));
  EXPECT_EQ(debt.level(), Pages(30));
  debt.take(Pages(30), Pages(10), {9, Pages(12)});
  EXPECT_EQ(debt.owed(Pages(30)), Pages(0)) << "no more than the heap came up to";
}

TEST(GrowthDebt, TheDebtorsOwnFreeEndsIt) {
  GrowthDebt debt;
  debt.take(Pages(30), Pages(30), {7, Pages(30)});
  debt.note_free(8);
  EXPECT_EQ(debt.owed(Pages(30)), Pages(30));
  debt.note_free(7);
  EXPECT_EQ(debt.owed(Pages(30)), Pages(0));
  EXPECT_EQ(debt.level(), Pages(30));
}

TEST(GrowthDebt, WhatItHasWrittenToIsTooLate) {
  GrowthDebt debt;
  debt.take(Pages(30), Pages(30), {7, Pages(30)});
  debt.note_copied(Pages(0));
  EXPECT_EQ(debt.owed(Pages(30)), Pages(30));
  debt.note_copied(Pages(18));
  EXPECT_EQ(debt.owed(Pages(30)), Pages(12));
  EXPECT_EQ(debt.level(), Pages(18));
}

TEST(GrowthDebt, AShorterRunIsNoGrowth) {
  GrowthDebt debt;
  debt.take(Pages(30), Pages(30), {7, Pages(30)});
  debt.take(Pages(50), Pages(20), {9, Pages(29)});
  EXPECT_EQ(debt.owed(Pages(50)), Pages(0));
  EXPECT_EQ(debt.level(), Pages(30));
  debt.take(Pages(80), Pages(30), {11, Pages(30)});
  EXPECT_EQ(debt.owed(Pages(80)), Pages(30)) << "one as long is";
  EXPECT_EQ(debt.level(), Pages(50));
}

// However a program continues with its memory, the pages that are purged never exceed the highest
// level of its heap.
TEST(GrowthDebt, RepetitionsPayNoMoreThanTheLevel) {
  GrowthDebt debt;
  constexpr size_t kLength = 100;
  size_t paid = 0;
  for (int round = 0; round < 1000; ++round) {
    // Two buffers. The new one is taken before the old one is freed, and free memory never serves.
    debt.take(Pages(2 * kLength), Pages(kLength),
              {static_cast<uintptr_t>(round + 1), Pages(kLength)});
    const Pages owed = debt.owed(Pages(2 * kLength));
    debt.pay(owed);
    paid += owed.count;
  }
  EXPECT_GT(paid, 0u);
  EXPECT_LE(paid, 2 * kLength);
}

}  // namespace
}  // namespace loam
