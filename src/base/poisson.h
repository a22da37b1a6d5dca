// A Poisson process over bytes: each byte is a point with the same small chance, so that a block is
// sampled with a chance that its size alone decides, whatever the program does.
//
//   P(sampled) = 1 - exp(-bytes / mean)        weight = bytes / P(sampled), whose mean is `bytes`
//
// Without the mathematical library, which libloam must not need.
#pragma once

#include <bit>
#include <cstdint>

namespace loam::poisson {

/// The natural logarithm, to some 1e-10 of the result. pre: x is normal and above 0
[[nodiscard]] constexpr double log(double x) {
  constexpr double kLog2 = 0.693147180559945309;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1023} << 52);
  if (m > 1.414213562373095049) {
    m /= 2;
    ++exponent;
  }
  // 2 atanh(s), by its series; |s| <= 0.172
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double sum = 0;
  for (int power = 13; power >= 1; power -= 2) sum = sum * s2 + 1.0 / power;
  return exponent * kLog2 + 2 * s * sum;
}

/// 1 - exp(-x), to some 1e-10 of the result. pre: x >= 0
[[nodiscard]] constexpr double one_minus_exp(double x) {
  if (x > 40) return 1;
  // 1 - exp(-2y) = (1 - exp(-y)) (2 - (1 - exp(-y))): halve until the series is short
  int halvings = 0;
  for (; x > 0.125; x /= 2) ++halvings;
  double sum = 0;
  for (int term = 9; term >= 1; --term) sum = x / term * (1 - sum);
  for (; halvings > 0; --halvings) sum *= 2 - sum;
  return sum;
}

/// Bytes up to the next point, at least 1, from 64 random bits.
[[nodiscard]] constexpr uint64_t next_distance(uint64_t random, double mean) {
  const double uniform = static_cast<double>((random >> 11) + 1) * 0x1p-53;  // in (0, 1]
  return static_cast<uint64_t>(-log(uniform) * mean) + 1;
}

/// What a sampled block stands for, in bytes.
[[nodiscard]] constexpr uint64_t weight(uint64_t bytes, double mean) {
  if (bytes == 0) return 0;
  const double size = static_cast<double>(bytes);
  return static_cast<uint64_t>(size / one_minus_exp(size / mean) + 0.5);
}

}  // namespace loam::poisson
