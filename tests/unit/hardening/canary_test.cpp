// The bytes behind a block, which no program may write.
#include "hardening/canary.h"

#include <cstring>

#include <gtest/gtest.h>

namespace loam {
namespace {

constexpr size_t kSlot = 64;

class Canary : public testing::Test {
 protected:
  void SetUp() override {
    start_canaries();
    memset(slot, 'x', kSlot);
  }
  alignas(16) unsigned char slot[kSlot];
};

TEST_F(Canary, EveryByteBehindTheBlockShowsAndNoneOfTheBlockIsTouched) {
  for (size_t bytes = 0; bytes < kSlot; ++bytes) {
    memset(slot, 'x', kSlot);
    write_canary(slot, bytes, kSlot);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(slot[i], 'x') << bytes;
    ASSERT_EQ(first_overwritten(slot, bytes, kSlot), kSlot);
    for (size_t i = bytes; i < kSlot; ++i) {
      slot[i] ^= 1;
      ASSERT_EQ(first_overwritten(slot, bytes, kSlot), i) << bytes;
      slot[i] ^= 1;
    }
  }
}

TEST_F(Canary, NoByteOfItIsZero) {
  write_canary(slot, 0, kSlot);
  for (const unsigned char byte : slot) EXPECT_NE(byte, 0);
}

TEST_F(Canary, ACanaryThatWasReadElsewhereDoesNotFit) {
  alignas(16) unsigned char other[kSlot];
  write_canary(slot, 0, kSlot);
  write_canary(other, 0, kSlot);
  EXPECT_NE(memcmp(slot, other, kSlot), 0);
}

}  // namespace
}  // namespace loam
