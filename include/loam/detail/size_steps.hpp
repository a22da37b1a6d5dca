// Sizes in classes of bounded waste: steps of 16 bytes up to 16 * Steps, then Steps per doubling.
//
//   Steps = 8:  16 32 48 .. 128 | 144 160 .. 256 | 288 320 .. 512 | ...
//
// A request of n bytes is rounded up by less than max(16, n / Steps).
#pragma once

#include <bit>
#include <cstddef>

namespace loam::detail {

template <unsigned Steps>
struct size_steps {
  static_assert(Steps != 0 && (Steps & (Steps - 1)) == 0, "steps per doubling: a power of two");
  static constexpr unsigned kShift = static_cast<unsigned>(std::countr_zero(Steps));
  static constexpr std::size_t kLinear = std::size_t{16} * Steps;

  /// pre: bytes != 0
  static constexpr std::size_t index(std::size_t bytes) noexcept {
    const std::size_t n = bytes - 1;
    if (n < kLinear) return n / 16;
    const auto log = static_cast<unsigned>(std::bit_width(n)) - 1;
    const std::size_t doubling = log - 4 - kShift;
    return Steps + doubling * Steps + ((n >> (log - kShift)) & (Steps - 1));
  }

  /// The largest size of a class.
  static constexpr std::size_t most(std::size_t index) noexcept {
    if (index < Steps) return (index + 1) * 16;
    const std::size_t doubling = (index - Steps) / Steps, step = (index - Steps) % Steps;
    return (Steps + step + 1) << (doubling + 4);
  }
};

static_assert(size_steps<8>::index(16) == 0 && size_steps<8>::index(17) == 1);
static_assert(size_steps<8>::most(size_steps<8>::index(128)) == 128);
static_assert(size_steps<8>::most(size_steps<8>::index(129)) == 144);
static_assert(size_steps<8>::most(size_steps<8>::index(257)) == 288);

}  // namespace loam::detail
