// The stress program's random numbers: SplitMix64, one state word, the same on every machine.
#ifndef LOAM_TESTS_STRESS_RANDOM_H
#define LOAM_TESTS_STRESS_RANDOM_H

#include <cstdint>

namespace stress {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix(seed + kGolden)) {}

  uint64_t next() { return mix(state_ += kGolden); }

  // In [0, bound). The bias of a plain remainder is far below what a test could notice.
  uint64_t below(uint64_t bound) { return next() % bound; }

  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace stress

#endif
