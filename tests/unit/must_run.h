// An assertion may stand under a condition that the test does not decide itself. It must then run
// at least once:
//
//   MustRun none_fits{"no block fits"};
//   for (...) {
//     if (expected == nullptr) {
//       none_fits.ran();
//       ASSERT_EQ(found, nullptr);
//     }
//   }                                  // fails at the end of the scope if none_fits never ran
#pragma once

#include <gtest/gtest.h>

namespace loam::test {

class MustRun {
 public:
  explicit MustRun(const char* what) : what_(what) {}
  MustRun(const MustRun&) = delete;
  MustRun& operator=(const MustRun&) = delete;
  ~MustRun() {
    // A fatal failure ends a test early.
    if (!testing::Test::HasFatalFailure()) {
      EXPECT_GT(times_, 0u) << "never met, so that nothing was checked: " << what_;
    }
  }

  void ran() { ++times_; }

 private:
  const char* what_;
  unsigned long times_ = 0;
};

}  // namespace loam::test
