// The knowledge of a block by its address, and the log of frees.
#include "hardening/shadow.h"

#include <gtest/gtest.h>

#include "hardening/free_log.h"

namespace loam {
namespace {

constexpr uintptr_t kAddress = uintptr_t{5} << kRegionShift;

const void* at(uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST(Shadow, AStateIsThatOfOneAddress) {
  static Shadow shadow;
  ASSERT_TRUE(shadow.start());
  EXPECT_EQ(shadow.find(kAddress), nullptr) << "nothing was noted near it";
  std::atomic<Shadow::State>* place = shadow.make(kAddress);
  ASSERT_NE(place, nullptr);
  place->store(Shadow::kSmallest + 100, std::memory_order_relaxed);
  EXPECT_EQ(shadow.state(at(kAddress)), Shadow::kSmallest + 100);
  EXPECT_TRUE(Shadow::is_live(shadow.state(at(kAddress))));
  EXPECT_EQ(shadow.state(at(kAddress + 16)), Shadow::kUnknown);
  EXPECT_EQ(shadow.state(at(kAddress - 16)), Shadow::kUnknown);
}

TEST(Shadow, AnyAddressIsAnswered) {
  static Shadow shadow;
  EXPECT_EQ(shadow.find(kAddress), nullptr) << "it has not begun";
  ASSERT_TRUE(shadow.start());
  ASSERT_NE(shadow.make(kAddress), nullptr);
  EXPECT_EQ(shadow.find(kAddress + 8), nullptr) << "misaligned";
  EXPECT_EQ(shadow.find(0), nullptr);
  EXPECT_EQ(shadow.find(UINTPTR_MAX - 15), nullptr);
}

TEST(FreeLog, TheLastFreeOfABlockIsFoundAsLongAsItIsRecent) {
  static FreeLog log;
  FreeLog::Free found{};
  EXPECT_FALSE(log.find(at(kAddress), &found));
  ASSERT_TRUE(log.start());
  log.add(at(kAddress), {at(1), 17, 100});
  log.add(at(kAddress), {at(2), 18, 200});
  ASSERT_TRUE(log.find(at(kAddress), &found));
  EXPECT_EQ(found.caller, at(2));
  EXPECT_EQ(found.thread, 18u);
  EXPECT_EQ(found.bytes, 200u);
  for (size_t i = 0; i + 1 < FreeLog::kEntries; ++i) log.add(at(kAddress + 16), {nullptr, 1, 1});
  EXPECT_TRUE(log.find(at(kAddress), &found));
  log.add(at(kAddress + 16), {nullptr, 1, 1});
  EXPECT_FALSE(log.find(at(kAddress), &found));
}

}  // namespace
}  // namespace loam
