// How far use fell and how much of that came back, by numbers alone.
#include "pages/fallen_use.h"

#include <gtest/gtest.h>

namespace loam {
namespace {

TEST(FallenUse, WhatUseRegainsOfAFallCameBack) {
  FallenUse use;
  EXPECT_EQ(use.note(100), 0u) << "nothing fell before";
  EXPECT_EQ(use.note(40), 0u);
  EXPECT_EQ(use.fallen(), 60u);
  EXPECT_EQ(use.note(70), 30u);
  EXPECT_EQ(use.fallen(), 30u);
  EXPECT_EQ(use.note(150), 60u) << "what rose beyond the peak never fell";
  EXPECT_EQ(use.fallen(), 0u);
  EXPECT_EQ(use.high(), 150u);
}

TEST(FallenUse, WhatWasGivenBackDoesNotFallTwice) {
  FallenUse use;
  static_cast<void>(use.note(100));
  static_cast<void>(use.note(40));
  use.give_back(use.fallen());
  EXPECT_EQ(use.fallen(), 0u);
  static_cast<void>(use.note(30));
  EXPECT_EQ(use.fallen(), 10u);
  EXPECT_EQ(use.note(100), 70u) << "it came back all the same";
}

TEST(FallenUse, AForgottenPeakComesBackNoMore) {
  FallenUse use;
  static_cast<void>(use.note(100));
  static_cast<void>(use.note(40));
  use.forget();
  EXPECT_EQ(use.note(70), 0u);
  static_cast<void>(use.note(50));
  EXPECT_EQ(use.note(60), 10u);
}

TEST(RecentMost, TheMostOfTwoRoundsIsKnown) {
  RecentMost most;
  most.note(5);
  most.note(3);
  EXPECT_EQ(most.most(), 5u);
  most.end_round();
  most.note(4);
  EXPECT_EQ(most.most(), 5u);
  most.end_round();
  EXPECT_EQ(most.most(), 4u);
  most.end_round();
  EXPECT_EQ(most.most(), 0u);
}

}  // namespace
}  // namespace loam
