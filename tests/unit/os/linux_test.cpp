// The real system through os.h: the properties on which every layer above relies.
#include <cerrno>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/units.h"
#include "os/fatal.h"
#include "os/os.h"

namespace loam {
namespace {

uintptr_t number(void* p) { return reinterpret_cast<uintptr_t>(p); }

TEST(System, GranularityIsAPowerOfTwoThatHoldsWholePages) {
  EXPECT_TRUE(is_power_of_two(os::granularity()));
  EXPECT_EQ(os::granularity() % kPageBytes, 0u);
}

TEST(System, ReservationsHaveTheirAlignment) {
  for (size_t alignment = os::granularity(); alignment <= kRegionBytes; alignment *= 2) {
    void* p = os::reserve(2 * os::granularity(), alignment);
    ASSERT_NE(p, nullptr) << alignment;
    EXPECT_EQ(number(p) % alignment, 0u);
    os::release(p, 2 * os::granularity());
  }
}

TEST(System, CommittedMemoryIsZeroAndStaysZeroAfterAPurge) {
  const size_t bytes = 4 * os::granularity();
  char* p = static_cast<char*>(os::reserve(bytes, os::granularity()));
  ASSERT_NE(p, nullptr);
  ASSERT_TRUE(os::commit(p, bytes));
  for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(p[i], 0);
  memset(p, 1, bytes);
  ASSERT_TRUE(os::purge(p + os::granularity(), os::granularity()));
  EXPECT_EQ(p[os::granularity() - 1], 1);
  EXPECT_EQ(p[os::granularity()], 0);
  EXPECT_EQ(p[2 * os::granularity() - 1], 0);
  EXPECT_EQ(p[2 * os::granularity()], 1);
  os::release(p, bytes);
}

#if defined(__GLIBC__)
// The locks depend on this. The test has a process of its own, because a process never forgets that
// it had a second thread.
TEST(System, AProcessHasOneThreadUntilASecondStarts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto look = [] {
    if (os::is_single_threaded()) _exit(1);  // unknown before the C library is ready
    os::start();
    if (!os::is_single_threaded()) _exit(2);
    bool seen_by_the_second = true;
    std::thread([&] { seen_by_the_second = os::is_single_threaded(); }).join();
    _exit(seen_by_the_second || os::is_single_threaded() ? 3 : 0);
  };
  EXPECT_EXIT(look(), testing::ExitedWithCode(0), "");
}
#endif

TEST(System, AnImpossibleReservationIsRefusedAndErrnoIsKept) {
  errno = 77;
  EXPECT_EQ(os::reserve(size_t{1} << 62, os::granularity()), nullptr);
  EXPECT_EQ(os::map_block(size_t{1} << 62, os::granularity()), nullptr);
  EXPECT_FALSE(os::commit(reinterpret_cast<void*>(uintptr_t{1} << 63), os::granularity()));
  EXPECT_EQ(errno, 77);
}

TEST(System, ABlockMovesWithItsContent) {
  const size_t bytes = size_t{1} << 20;
  char* p = static_cast<char*>(os::map_block(bytes, bytes));
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(number(p) % bytes, 0u);
  memset(p, 5, bytes);
  char* moved = static_cast<char*>(os::remap_block(p, bytes, 8 * bytes, false));
  ASSERT_NE(moved, nullptr);
  EXPECT_EQ(moved[0], 5);
  EXPECT_EQ(moved[bytes - 1], 5);
  EXPECT_EQ(moved[bytes], 0);
  EXPECT_EQ(os::remap_block(moved, 8 * bytes, bytes, true), moved);
  os::release(moved, bytes);
}

TEST(System, MemoryThatMovesToABlockLeavesZerosBehind) {
  const size_t bytes = size_t{1} << 20, page = os::granularity();
  char* const p = static_cast<char*>(os::reserve(4 * bytes, bytes));
  ASSERT_NE(p, nullptr);
  ASSERT_TRUE(os::commit(p, 4 * bytes));
  memset(p, 5, 4 * bytes);
  errno = 77;
  EXPECT_EQ(os::move_to_block(p + bytes, bytes, size_t{1} << 62).block, nullptr);
  EXPECT_EQ(p[bytes], 5) << "a refused move leaves everything as it was";
  EXPECT_EQ(p[2 * bytes - 1], 5);
  const os::Moved result = os::move_to_block(p + bytes, bytes, 8 * bytes);
  char* const moved = static_cast<char*>(result.block);
  EXPECT_EQ(errno, 77);
  if (moved == nullptr)
    GTEST_SKIP() << "this system, or a tool that follows mappings, cannot move pages so";
  EXPECT_TRUE(moved + 8 * bytes <= p || moved >= p + 4 * bytes);
  EXPECT_EQ(moved[0], 5);
  EXPECT_EQ(moved[bytes - 1], 5);
  EXPECT_EQ(moved[bytes], 0);
  EXPECT_TRUE(result.has_place);
  unsigned char held[2] = {1, 1};
  EXPECT_EQ(mincore(p + bytes, page, &held[0]), 0);
  EXPECT_EQ(mincore(p + 2 * bytes - page, page, &held[1]), 0);
  EXPECT_EQ((held[0] | held[1]) & 1, 0) << "the old place holds no memory";
  EXPECT_EQ(p[bytes], 0);
  memset(p + bytes, 6, bytes);  // still committed
  EXPECT_EQ(moved[0], 5);
  EXPECT_EQ(p[bytes - 1], 5);
  EXPECT_EQ(p[2 * bytes], 5);
  // The range is one mapping, and can grow and shrink.
  char* const longer = static_cast<char*>(os::remap_block(moved, 8 * bytes, 9 * bytes, false));
  ASSERT_NE(longer, nullptr);
  EXPECT_EQ(longer[bytes - 1], 5);
  os::release(longer, 9 * bytes);
  os::release(p, 4 * bytes);
}

TEST(System, LockedMemoryStaysLockedWhereItMoves) {
  const size_t bytes = 4 * os::granularity();
  char* const p = static_cast<char*>(os::reserve(bytes, bytes));
  ASSERT_NE(p, nullptr);
  ASSERT_TRUE(os::commit(p, bytes));
  memset(p, 5, bytes);
  if (mlock(p, bytes) != 0) {
    os::release(p, bytes);
    GTEST_SKIP() << "this process may not lock memory";
  }
  const os::Moved moved = os::move_to_block(p, bytes / 2, bytes);
  if (moved.block != nullptr) {
    EXPECT_EQ(static_cast<char*>(moved.block)[0], 5);
    EXPECT_EQ(madvise(moved.block, bytes, MADV_DONTNEED), -1);
    os::release(moved.block, bytes);
  }
  EXPECT_EQ(madvise(p + bytes / 2, bytes / 2, MADV_DONTNEED), -1) << "and so does the rest";
  os::release(p, bytes);
}

TEST(System, RunningTimeIsWhatThreadsRan) {
  const uint64_t before = os::running_ms(), began = os::now_ns();
  os::sleep_ms(50);
  EXPECT_LT(os::running_ms() - before, 50u) << "who sleeps does not run";
  while (os::running_ms() - before < 20) {
    ASSERT_LT(os::now_ns() - began, uint64_t{60} * 1'000'000'000) << "who runs does";
  }
}

TEST(System, TheClockNeverGoesBack) {
  uint64_t before = os::now_ns();
  for (int i = 0; i < 1000; ++i) {
    const uint64_t now = os::now_ns();
    ASSERT_GE(now, before);
    before = now;
  }
  EXPECT_NE(os::now_coarse_ns(), 0u);
}

int exits = 0;

TEST(System, AThreadThatArmedItsExitIsHeardOf) {
  static int armed = 3;
  const auto add = [](void* argument) { exits += *static_cast<int*>(argument); };
  std::thread([=] { EXPECT_TRUE(os::arm_thread_exit(add, &armed)); }).join();
  std::thread([] {}).join();
  EXPECT_EQ(exits, 3);
}

TEST(SystemDeathTest, AFatalErrorIsOneLineWithTheAddress) {
  EXPECT_DEATH(fatal("something broke", reinterpret_cast<void*>(0x1a2b)),
               "^loam: something broke \\(address 0x1a2b\\)\n$");
  EXPECT_DEATH(fatal("no address"), "^loam: no address\n$");
}

TEST(SystemDeathTest, MisuseAbortsUnlessItIsOnlyReported) {
  EXPECT_DEATH(report_misuse("double free", reinterpret_cast<void*>(0x10)),
               "double free .address 0x10");
  set_corruption_policy(CorruptionPolicy::kReport);
  testing::internal::CaptureStderr();
  report_misuse("double free", reinterpret_cast<void*>(0x10));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "loam: double free (address 0x10)\n");
  set_corruption_policy(CorruptionPolicy::kAbort);
}

TEST(SystemDeathTest, ReservedMemoryCannotBeTouched) {
  char* p = static_cast<char*>(os::reserve(os::granularity(), os::granularity()));
  ASSERT_NE(p, nullptr);
  EXPECT_DEATH(*p = 1, "");
  os::release(p, os::granularity());
}

}  // namespace
}  // namespace loam
