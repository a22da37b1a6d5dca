// Random numbers for tests. They are the same on every machine, and a failure names the seed that
// repeats it.
//
//   Random random = seeded();          // LOAM_TEST_SEED, or 1
//   LOAM_TRACE_SEED(random);           // every failure in this scope prints the seed
#pragma once

#include <cstdint>
#include <cstdlib>

#include <gtest/gtest.h>

namespace loam::test {

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed), state_(seed) {}

  [[nodiscard]] uint64_t seed() const { return seed_; }

  /// SplitMix64: passes the usual batteries, and any seed is a good seed.
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// 0 .. n - 1. pre: n != 0
  uint64_t below(uint64_t n) { return next() % n; }
  unsigned between(unsigned low, unsigned high) {
    return low + static_cast<unsigned>(below(high - low + 1));
  }
  bool chance(unsigned percent) { return below(100) < percent; }

  /// Small numbers are more likely: every magnitude is equally likely. pre: 1 <= high
  unsigned magnitude(unsigned high) {
    const unsigned bits =
        static_cast<unsigned>(below(32u - static_cast<unsigned>(__builtin_clz(high))));
    const unsigned n = (1u << bits) + static_cast<unsigned>(below(uint64_t{1} << bits));
    return n < high ? n : high;
  }

 private:
  uint64_t seed_;
  uint64_t state_;
};

/// `salt` gives each test of a file another sequence.
inline Random seeded(uint64_t salt = 0) {
  const char* text = std::getenv("LOAM_TEST_SEED");
  return Random((text == nullptr ? 1 : std::strtoull(text, nullptr, 0)) + (salt << 32));
}

}  // namespace loam::test

#define LOAM_TRACE_SEED(random) \
  SCOPED_TRACE(::testing::Message() << "LOAM_TEST_SEED=" << ((random).seed() & 0xffffffff))
