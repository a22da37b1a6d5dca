// The pretended system itself: what it refuses and counts, and that it catches a caller's mistakes.
#include "fake_system/fake.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/units.h"
#include "os/os.h"

namespace loam {
namespace {

namespace fake = os::fake;
using fake::Call;

class FakeSystem : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    fake::reset();
  }
  static uintptr_t number(void* p) { return reinterpret_cast<uintptr_t>(p); }
  static void* at(void* p, size_t offset) { return static_cast<char*>(p) + offset; }
};
using FakeSystemDeathTest = FakeSystem;

TEST_F(FakeSystem, ReservationsKeepTheirAlignmentAndNeverOverlap) {
  uintptr_t end = 0;
  for (size_t alignment = kPageBytes; alignment <= kRegionBytes; alignment *= 2) {
    void* p = os::reserve(3 * kPageBytes, alignment);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(number(p) % alignment, 0u);
    EXPECT_GE(number(p), end);
    end = number(p) + 3 * kPageBytes;
  }
}

TEST_F(FakeSystem, TerabytesCostNothing) {
  const size_t terabyte = size_t{1} << 40;
  void* p = os::reserve(terabyte, kRegionBytes);
  ASSERT_NE(p, nullptr);
  EXPECT_TRUE(os::commit(p, terabyte));
  EXPECT_EQ(fake::committed_bytes(), terabyte);
  os::release(p, terabyte);
  EXPECT_EQ(fake::reserved_bytes(), 0u);
  EXPECT_EQ(fake::committed_bytes(), 0u);
}

TEST_F(FakeSystem, MetadataIsRealMemoryAndZero) {
  char* p = static_cast<char*>(os::reserve_metadata(1 << 20, 1 << 20));
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(number(p) % (1 << 20), 0u);
  ASSERT_TRUE(os::commit(p, 8192));
  for (int i = 0; i < 8192; ++i) ASSERT_EQ(p[i], 0);
  memset(p, 1, 8192);
  os::release(p, 1 << 20);
}

TEST_F(FakeSystem, ReleasedAddressesComeBackOnlyWhenAsked) {
  void* a = os::reserve(kSlabBytes, kSlabBytes);
  os::release(a, kSlabBytes);
  void* b = os::reserve(kSlabBytes, kSlabBytes);
  EXPECT_NE(a, b);
  fake::reuse_addresses(true);
  void* c = os::reserve(kSlabBytes, kSlabBytes);
  EXPECT_EQ(a, c);
  void* d = os::reserve(kSlabBytes, kSlabBytes);
  EXPECT_NE(d, a);
}

TEST_F(FakeSystem, TheNthCallOfAKindIsRefusedAndTheNextOneIsNot) {
  fake::fail(Call::kReserve, 2, 1);
  EXPECT_NE(os::reserve(kPageBytes, kPageBytes), nullptr);
  EXPECT_EQ(os::reserve(kPageBytes, kPageBytes), nullptr);
  EXPECT_NE(os::reserve(kPageBytes, kPageBytes), nullptr);
  EXPECT_EQ(fake::calls(Call::kReserve), 3u);
  EXPECT_EQ(fake::refusals(Call::kReserve), 1u);
  const auto log = fake::log();
  ASSERT_EQ(log.size(), 3u);
  EXPECT_TRUE(log[1].refused);
  EXPECT_EQ(log[1].address, 0u);
}

TEST_F(FakeSystem, AKindFailsForEverUntilCleared) {
  void* p = os::reserve(kSlabBytes, kSlabBytes);
  fake::fail(Call::kCommit);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(os::commit(p, kPageBytes));
  EXPECT_FALSE(fake::is_committed(number(p), kPageBytes));
  fake::clear_failures();
  EXPECT_TRUE(os::commit(p, kPageBytes));
}

TEST_F(FakeSystem, AnyCallCanBeTheOneThatFails) {
  fake::fail_any(2);
  void* p = os::reserve(kSlabBytes, kSlabBytes);
  EXPECT_FALSE(os::commit(p, kPageBytes));
  EXPECT_TRUE(os::commit(p, kPageBytes));
  EXPECT_EQ(fake::fallible_calls(), 3u);
}

TEST_F(FakeSystem, AddressSpaceEndsAtTheLimit) {
  fake::limit_reserved(4 * kSlabBytes);
  void* p = os::reserve(3 * kSlabBytes, kSlabBytes);
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(os::reserve(2 * kSlabBytes, kSlabBytes), nullptr);
  EXPECT_EQ(os::map_block(2 * kSlabBytes, kPageBytes), nullptr);
  os::release(p, 3 * kSlabBytes);
  EXPECT_NE(os::reserve(4 * kSlabBytes, kSlabBytes), nullptr);
}

TEST_F(FakeSystem, WrittenMemoryIsResidentUntilItIsPurged) {
  void* p = os::reserve(kSlabBytes, kSlabBytes);
  ASSERT_TRUE(os::commit(p, kSlabBytes));
  EXPECT_EQ(fake::resident_bytes(), 0u);
  fake::touch(number(p) + 100, 1);
  fake::touch(number(p) + 4 * kPageBytes - 1, 2);
  EXPECT_EQ(fake::resident_bytes(), 3 * kPageBytes);
  EXPECT_EQ(fake::written_bytes(number(p), 1000), 1u);
  EXPECT_EQ(fake::written_bytes(number(p) + kPageBytes, 2 * kPageBytes), 0u);
  EXPECT_EQ(fake::written_bytes(number(p), kSlabBytes), 3u);
  EXPECT_TRUE(os::purge(at(p, 3 * kPageBytes), kPageBytes));
  EXPECT_EQ(fake::resident_bytes(), 2 * kPageBytes);
  EXPECT_EQ(fake::written_bytes(number(p), kSlabBytes), 2u) << "content goes with the backing";
  EXPECT_TRUE(os::populate(at(p, 8 * kPageBytes), 2 * kPageBytes));
  EXPECT_EQ(fake::resident_bytes(), 4 * kPageBytes);
}

TEST_F(FakeSystem, AMappingGrowsInPlaceWhereThereIsRoomAndMovesWhereNot) {
  void* a = os::map_block(4 * kPageBytes, kPageBytes);
  EXPECT_EQ(os::remap_block(a, 4 * kPageBytes, 8 * kPageBytes, true), a);
  void* b = os::map_block(kPageBytes, kPageBytes);
  EXPECT_EQ(number(b), number(a) + 8 * kPageBytes);
  EXPECT_EQ(os::remap_block(a, 8 * kPageBytes, 9 * kPageBytes, true), nullptr);
  EXPECT_TRUE(fake::is_committed(number(a), 8 * kPageBytes));
  void* moved = os::remap_block(a, 8 * kPageBytes, 9 * kPageBytes, false);
  EXPECT_NE(moved, a);
  EXPECT_FALSE(fake::is_reserved(number(a), kPageBytes));
  EXPECT_TRUE(fake::is_committed(number(moved), 9 * kPageBytes));
  EXPECT_EQ(os::remap_block(moved, 9 * kPageBytes, kPageBytes, true), moved);
  EXPECT_EQ(fake::committed_bytes(), 2 * kPageBytes);
}

TEST_F(FakeSystem, MemoryThatMovesToABlockLeavesNothingBehind) {
  void* p = os::reserve(8 * kPageBytes, kPageBytes);
  EXPECT_TRUE(os::commit(p, 8 * kPageBytes));
  fake::touch(number(p), kPageBytes);
  fake::touch(number(p) + 3 * kPageBytes, 2 * kPageBytes);
  fake::fail(fake::Call::kMoveToBlock, 1, 1);
  EXPECT_EQ(os::move_to_block(at(p, 2 * kPageBytes), 2 * kPageBytes, 3 * kPageBytes).block,
            nullptr);
  EXPECT_EQ(fake::written_bytes(number(p), 8 * kPageBytes), 3 * kPageBytes);
  void* moved = os::move_to_block(at(p, 2 * kPageBytes), 2 * kPageBytes, 3 * kPageBytes).block;
  ASSERT_NE(moved, nullptr);
  EXPECT_EQ(fake::written_bytes(number(moved), kPageBytes), 0u);
  EXPECT_EQ(fake::written_bytes(number(moved), 3 * kPageBytes), kPageBytes);
  EXPECT_EQ(fake::written_bytes(number(p), 8 * kPageBytes), 2 * kPageBytes);
  EXPECT_EQ(fake::resident_bytes(), 3 * kPageBytes);
  EXPECT_TRUE(fake::is_committed(number(p), 8 * kPageBytes));
  EXPECT_TRUE(fake::is_committed(number(moved), 3 * kPageBytes));
}

TEST_F(FakeSystem, TheClockStandsStillUntilItIsMoved) {
  const uint64_t before = os::now_coarse_ns();
  EXPECT_EQ(os::now_ns(), before);
  fake::advance_ms(1500);
  EXPECT_EQ(os::now_coarse_ns(), before + 1'500'000'000);
  fake::set_clock_ms(7);
  EXPECT_EQ(os::now_ns(), 7'000'000u);
  EXPECT_EQ(os::running_ms(), 7u);
  fake::set_running_threads(3);
  EXPECT_EQ(os::running_ms(), 21u);
}

TEST_F(FakeSystem, OptionsAreWhatTheTestSays) {
  EXPECT_EQ(os::option("LOAM_X"), nullptr);
  fake::set_option("LOAM_X", "y");
  EXPECT_STREQ(os::option("LOAM_X"), "y");
  fake::set_option("LOAM_X", nullptr);
  EXPECT_EQ(os::option("LOAM_X"), nullptr);
}

TEST_F(FakeSystemDeathTest, EveryBreachOfTheContractIsFound) {
  void* p = os::reserve(kSlabBytes, kSlabBytes);
  EXPECT_DEATH(os::release(p, 2 * kSlabBytes), "not reserved");
  EXPECT_DEATH((void)os::commit(p, 100), "size that is no multiple");
  EXPECT_DEATH((void)os::commit(at(p, 100), kPageBytes), "address that is no multiple");
  EXPECT_DEATH((void)os::commit(at(p, kSlabBytes), kPageBytes), "not reserved");
  EXPECT_DEATH((void)os::commit(p, 0), "empty range");
  EXPECT_DEATH((void)os::purge(p, kPageBytes), "not committed");
  EXPECT_DEATH(fake::touch(number(p), 1), "not committed");
  EXPECT_DEATH((void)os::reserve(kPageBytes, 3 * kPageBytes), "no power of two");
  EXPECT_DEATH((void)os::remap_block(p, kPageBytes, 2 * kPageBytes, false), "not mapped");
  EXPECT_DEATH((void)os::move_to_block(p, kPageBytes, 2 * kPageBytes), "not committed");
}

TEST_F(FakeSystemDeathTest, LargerPagesMakeSmallerRangesABreach) {
  fake::set_granularity(65536);
  EXPECT_EQ(os::granularity(), 65536u);
  void* p = os::reserve(kSlabBytes, kSlabBytes);
  EXPECT_TRUE(os::commit(p, 65536));
  EXPECT_DEATH((void)os::purge(p, 16384), "multiple of the granularity");
  EXPECT_DEATH((void)os::commit(at(p, 4096), 65536), "multiple of the granularity");
  fake::touch(number(p), 1);
  EXPECT_EQ(fake::resident_bytes(), 65536u);
}

}  // namespace
}  // namespace loam
