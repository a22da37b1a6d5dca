// The functions that sampling by bytes needs, compared with the mathematical library.
#include "base/poisson.h"

#include <cmath>

#include <gtest/gtest.h>

#include "random.h"

namespace loam {
namespace {

constexpr double kMean = 512 << 10;

TEST(Poisson, TheLogarithmIsThatOfTheLibrary) {
  test::Random random(1);
  for (int i = 0; i < 100'000; ++i) {
    const double x = static_cast<double>((random.next() >> 11) + 1) * 0x1p-53;
    ASSERT_NEAR(poisson::log(x), std::log(x), 1e-9 * (1 + std::fabs(std::log(x)))) << x;
  }
  EXPECT_EQ(poisson::log(1), 0);
}

TEST(Poisson, TheChanceOfASampleIsThatOfTheLibrary) {
  for (double x = 1e-9; x < 100; x *= 1.01) {
    ASSERT_NEAR(poisson::one_minus_exp(x) / -std::expm1(-x), 1, 1e-9) << x;
  }
  EXPECT_EQ(poisson::one_minus_exp(0), 0);
}

TEST(Poisson, AWeightIsNeverBelowTheSizeNorTheMean) {
  EXPECT_EQ(poisson::weight(0, kMean), 0u);
  for (uint64_t bytes = 1; bytes < (uint64_t{1} << 40); bytes += 1 + bytes / 3) {
    ASSERT_GE(poisson::weight(bytes, kMean), bytes);
    ASSERT_GE(poisson::weight(bytes, kMean) + 1, static_cast<uint64_t>(kMean));
  }
  EXPECT_EQ(poisson::weight(uint64_t{1} << 40, kMean), uint64_t{1} << 40);
}

TEST(Poisson, DistancesHaveTheirMean) {
  test::Random random(2);
  double sum = 0;
  constexpr int kDraws = 1'000'000;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t distance = poisson::next_distance(random.next(), kMean);
    ASSERT_GE(distance, 1u);
    sum += static_cast<double>(distance);
  }
  EXPECT_NEAR(sum / kDraws / kMean, 1, 0.005);
  EXPECT_EQ(poisson::next_distance(~uint64_t{0}, kMean), 1u);
}

}  // namespace
}  // namespace loam
