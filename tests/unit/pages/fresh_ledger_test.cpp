// The debt for fresh pages: arithmetic, without memory.
#include "pages/fresh_ledger.h"

#include <gtest/gtest.h>

namespace loam {
namespace {

TEST(FreshLedger, EachFreshPageIsOwedOnce) {
  FreshLedger ledger;
  ledger.take(100);
  ledger.take_mapping({0x1000, Pages(50)}, Pages(50));
  EXPECT_EQ(ledger.taken(), 150u);
  EXPECT_EQ(ledger.of_runs(), 100u);
  EXPECT_EQ(ledger.owed(), Pages(150));
  ledger.pay(Pages(60));
  EXPECT_EQ(ledger.owed(), Pages(90));
  ledger.take(10);
  EXPECT_EQ(ledger.owed(), Pages(100));
}

TEST(FreshLedger, WhatGoesBeyondWhatIsOwedPaysForNothingLater) {
  FreshLedger ledger;
  ledger.take(10);
  ledger.pay(Pages(40));
  EXPECT_EQ(ledger.owed(), Pages(0));
  ledger.take(5);
  EXPECT_EQ(ledger.owed(), Pages(5));
}

TEST(FreshLedger, WhatWasTakenBeforeAnythingWasKeptIsNotOwed) {
  FreshLedger ledger;
  ledger.take(10);
  ledger.forgive();
  EXPECT_EQ(ledger.owed(), Pages(0));
  ledger.take(1);
  EXPECT_EQ(ledger.owed(), Pages(1));
}

TEST(FreshLedger, TheNewestMappingIsKnownUntilItIsFreed) {
  FreshLedger ledger;
  ledger.take_mapping({0x1000, Pages(50)}, Pages(50));
  ledger.take_mapping({0x9000, Pages(80)}, Pages(30));
  ledger.forget(0x1000);
  EXPECT_EQ(ledger.newest().address, 0x9000u);
  EXPECT_EQ(ledger.newest_fresh(), Pages(30));
  ledger.limit_newest(Pages(40));
  EXPECT_EQ(ledger.newest_fresh(), Pages(30));
  ledger.limit_newest(Pages(7));
  EXPECT_EQ(ledger.newest_fresh(), Pages(7));
  ledger.forget(0x9000);
  EXPECT_EQ(ledger.newest_fresh(), Pages(0));
}

TEST(FreshLedger, IdlePagesPayInBatchesBeyondHalfOfThePeak) {
  constexpr Pages kPeak{1000}, kBatch = PurgePolicy::kBatch;
  constexpr Pages kBound = kPeak + Pages(kPeak.count / kIdleShare) + PurgePolicy::kFloor;
  FreshLedger ledger;
  EXPECT_EQ(ledger.beyond_bound(Pages(500), kBound, kPeak), Pages(0)) << "the bound is allowed";
  const Pages above = kBound + kBatch;
  EXPECT_EQ(ledger.beyond_bound(kBatch - Pages(1), above, kPeak), Pages(0)) << "less than a batch";
  EXPECT_EQ(ledger.beyond_bound(Pages(1), above, kPeak), kBatch) << "they add up";
  EXPECT_EQ(ledger.beyond_bound(Pages(1), above, kPeak), Pages(0)) << "each is owed once";
  EXPECT_EQ(ledger.beyond_bound(Pages(900), above, kPeak), kBatch) << "no more than is beyond it";
}

}  // namespace
}  // namespace loam
