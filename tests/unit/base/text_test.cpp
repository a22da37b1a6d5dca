#include "base/text.h"

#include <string>

#include <gtest/gtest.h>

namespace loam::text {
namespace {

TEST(Text, DecimalDigitsAreThoseOfTheNumber) {
  uint64_t power = 1;
  for (int digits = 1; digits <= 20; ++digits, power *= 10) {
    for (const uint64_t number : {power - 1, power, power + 7}) {
      const Decimal decimal(number);
      EXPECT_EQ(decimal.digits(), std::to_string(number));
      EXPECT_EQ(decimal.length(), std::to_string(number).size());
    }
  }
  EXPECT_STREQ(Decimal(0).digits(), "0");
  EXPECT_STREQ(Decimal(UINT64_MAX).digits(), "18446744073709551615");
  static_assert(Decimal(120).length() == 3);
}

TEST(Text, WhatIsCopiedEndsWhereItFits) {
  char out[4] = {1, 1, 1, 1};
  copy(out, "ab", sizeof out);
  EXPECT_STREQ(out, "ab");
  copy(out, "abcd", sizeof out);
  EXPECT_STREQ(out, "abc");
  copy(out, "abcd", 1);
  EXPECT_STREQ(out, "");
}

TEST(Text, ComparisonsEndWithTheShorterText) {
  EXPECT_TRUE(same("", "") && same("on", "on"));
  EXPECT_FALSE(same("on", "one") || same("one", "on"));
  EXPECT_TRUE(begins_with("LOAM_X", "LOAM_", 5) && begins_with("", "LOAM_", 0));
  EXPECT_FALSE(begins_with("LO", "LOAM_", 5) || begins_with("LOAN_X", "LOAM_", 5));
  EXPECT_EQ(length("abc"), 3u);
  EXPECT_EQ(length_until("a,b", ','), 1u);
  EXPECT_EQ(length_until("ab", ','), 2u);
}

}  // namespace
}  // namespace loam::text
