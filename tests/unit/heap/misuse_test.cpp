// Mistakes of a program with a pointer. Each ends the program with one line or, on request, is
// reported and ignored.
#include <string>

#include <gtest/gtest.h>

#include "heap/heap.h"
#include "os/fatal.h"

namespace loam {
namespace {

class Misuse : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override {
    set_corruption_policy(CorruptionPolicy::kAbort);
    heap::free(small);
    heap::free(large);
    heap::free(huge);
    EXPECT_TRUE(heap::is_valid());
  }
  static char* block(size_t bytes) { return static_cast<char*>(heap::allocate(bytes)); }

  template <class Body>
  static std::string report_of(Body body) {
    set_corruption_policy(CorruptionPolicy::kReport);
    testing::internal::CaptureStderr();
    body();
    set_corruption_policy(CorruptionPolicy::kAbort);
    return testing::internal::GetCapturedStderr();
  }
  static void expect_one_line(const std::string& report, const char* what) {
    EXPECT_EQ(report.rfind("loam: ", 0), 0u) << report;
    EXPECT_NE(report.find(what), std::string::npos) << report;
    EXPECT_EQ(report.find('\n'), report.size() - 1) << report;
  }

  char* small = block(100);
  char* large = block(100'000);
  char* huge = block(size_t{64} << 20);
};
using MisuseDeathTest = Misuse;

TEST_F(MisuseDeathTest, FreeingTwiceEndsTheProcess) {
  for (const size_t bytes : {size_t{16}, size_t{1000}, size_t{100'000}, size_t{64} << 20}) {
    EXPECT_DEATH(
        {
          char* p = block(bytes);
          heap::free(p);
          heap::free(p);
        },
        "^loam: .*free")
        << bytes;
  }
}

TEST_F(MisuseDeathTest,
       FreeingTwiceWithOthersBetweenEndsTheProcessAtTheLatestWhenTheBlockGoesHome) {
  EXPECT_DEATH(
      {
        char* p = block(64);
        heap::free(p);
        for (int i = 0; i < 3; ++i) heap::free(block(64 + 64 * static_cast<size_t>(i)));
        heap::free(p);
        heap::compact();
      },
      "^loam: double free");
}

TEST_F(MisuseDeathTest, FreeingWhatIsNoBlockEndsTheProcess) {
  int local = 0;
  EXPECT_DEATH(heap::free(&local), "no block");
  EXPECT_DEATH(heap::free(small + 1), "no block");
  EXPECT_DEATH(heap::free(large + 4096), "no block");
  EXPECT_DEATH(heap::free(huge + 4096), "no block");
  EXPECT_DEATH(heap::free(reinterpret_cast<void*>(0x7000)), "no block .*0x7000");
  EXPECT_DEATH(heap::free(reinterpret_cast<void*>(UINTPTR_MAX)), "no block");
  EXPECT_DEATH((heap::free(small + 16), heap::compact()), "middle of a block");
}

TEST_F(MisuseDeathTest, ReallocatingWhatIsNoBlockEndsTheProcess) {
  EXPECT_DEATH((void)heap::reallocate(small + 16, 10), "realloc of a pointer that is no block");
  EXPECT_DEATH((void)heap::reallocate(large + 4096, 10), "realloc of a pointer that is no block");
  EXPECT_DEATH(
      {
        heap::free(small);
        (void)heap::reallocate(small, 10);
      },
      "realloc of a pointer that is no block");
}

TEST_F(Misuse, AReportIsOneLineAndTheHeapGoesOn) {
  int local = 0;
  expect_one_line(report_of([&] { heap::free(&local); }), "no block");
  expect_one_line(report_of([&] { heap::free(small + 3); }), "no block");
  expect_one_line(report_of([&] { heap::free(large + 4096); }), "no block");
  expect_one_line(report_of([&] { EXPECT_EQ(heap::reallocate(small + 16, 8), nullptr); }),
                  "realloc");
  for (const size_t bytes : {size_t{40}, size_t{100'000}, size_t{64} << 20}) {
    char* p = block(bytes);
    heap::free(p);
    expect_one_line(report_of([&] { heap::free(p); }), "free");
  }
  expect_one_line(report_of([&] {
                    heap::free(small + 16);
                    heap::compact();
                  }),
                  "middle of a block");
  EXPECT_TRUE(heap::is_valid());
}

TEST_F(Misuse, NeitherADoubleFreeNorItsReportHandsABlockOutTwice) {
  set_corruption_policy(CorruptionPolicy::kReport);
  testing::internal::CaptureStderr();
  char* p = block(64);
  heap::free(p);
  heap::free(p);
  char* a = block(64);
  char* b = block(64);
  EXPECT_NE(a, b);
  heap::free(a);
  heap::free(b);
  static_cast<void>(testing::internal::GetCapturedStderr());
}

}  // namespace
}  // namespace loam
