// Seeded randomness: the same seed gives the same requests under every allocator and machine.
//
// SplitMix64 (Steele, Lea and Flood, 2014): one add, two multiplies. It passes BigCrush. Its state
// is one word, so the generator hardly disturbs the measurement.
#pragma once

#include <cstdint>

namespace lab {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // Uniform in [0, n) by multiply-shift; for n < 2^32 the bias is below one in 2^32.
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(((next() >> 32) * n) >> 32); }

  // Uniform in [low, high], both included.
  uint32_t between(uint32_t low, uint32_t high) { return low + below(high - low + 1); }

 private:
  uint64_t state_;
};

// A generator for one thread or one part of an experiment, independent of its siblings.
inline Random stream(uint64_t seed, uint64_t number) {
  Random mixer(seed ^ (number + 1) * 0xD1B54A32D192ED03u);
  return Random(mixer.next());
}

// A running fingerprint of the sequence of requests. Two allocators that print the same one got the
// same requests in the same order.
class Checksum {
 public:
  void add(uint64_t word) { value_ = (value_ ^ word) * 0x100000001B3u + (value_ >> 47); }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xCBF29CE484222325u;
};

}  // namespace lab
