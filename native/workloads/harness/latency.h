// A histogram of sampled latencies: log-linear buckets, 16 to a doubling (6 % wide), in
// nanoseconds up to 18 minutes. Fixed size, so that adding is an index and an increment.
//
// To time every operation would cost more than the operation. One in kLatencySampling is timed, and
// the reports say so. The clock's own cost is measured at start and subtracted.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "system.h"

namespace lab {

inline constexpr uint32_t kLatencySampling = 64;
static_assert((kLatencySampling & (kLatencySampling - 1)) == 0, "tested with a mask");

class LatencyHistogram {
 public:
  void add(uint64_t ns) {
    ++counts_[bucket(ns)];
    ++samples_;
    if (ns > max_) max_ = ns;
  }

  void merge(const LatencyHistogram& other) {
    for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
    samples_ += other.samples_;
    if (other.max_ > max_) max_ = other.max_;
  }

  void clear() { *this = LatencyHistogram(); }

  uint64_t samples() const { return samples_; }
  uint64_t max() const { return max_; }

  // The upper edge of the bucket that holds the quantile, so never too low.
  uint64_t quantile(double q) const {
    const auto rank = static_cast<uint64_t>(q * static_cast<double>(samples_));
    uint64_t seen = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      seen += counts_[i];
      if (seen > rank) return upper_edge(i) < max_ ? upper_edge(i) : max_;
    }
    return max_;
  }

 private:
  // ns < 16: one bucket a nanosecond. Else:  | doubling (5 bits up) | top 4 bits below the first |
  static constexpr unsigned kSubBits = 4;
  static constexpr size_t kBuckets = (40 - kSubBits + 1) << kSubBits;

  static size_t bucket(uint64_t ns) {
    if (ns < (1u << kSubBits)) return ns;
    const unsigned shift = static_cast<unsigned>(std::bit_width(ns)) - 1 - kSubBits;
    const size_t i = ((shift + 1) << kSubBits) + ((ns >> shift) & ((1u << kSubBits) - 1));
    return i < kBuckets ? i : kBuckets - 1;
  }

  static uint64_t upper_edge(size_t i) {
    if (i < (1u << kSubBits)) return i;
    const unsigned shift = static_cast<unsigned>(i >> kSubBits) - 1;
    const uint64_t mantissa = (1u << kSubBits) + (i & ((1u << kSubBits) - 1));
    return ((mantissa + 1) << shift) - 1;
  }

  uint64_t samples_ = 0, max_ = 0;
  uint64_t counts_[kBuckets] = {};
};

// The cheapest of many back-to-back readings: the cost that timing adds to a timed operation.
inline uint64_t clock_cost_ns() {
  uint64_t best = ~uint64_t{0};
  for (int i = 0; i < 2000; ++i) {
    const uint64_t a = now_ns(), b = now_ns();
    if (b - a < best) best = b - a;
  }
  return best;
}

// One thread's sampler. `due()` costs an increment and a test; when it says yes, the caller
// brackets the operation with now_ns() and calls `add`.
class LatencySampler {
 public:
  explicit LatencySampler(uint64_t clock_cost = 0) : clock_cost_(clock_cost) {}
  bool due() { return (++count_ & (kLatencySampling - 1)) == 0; }
  void add(uint64_t begin_ns, uint64_t end_ns) {
    const uint64_t ns = end_ns - begin_ns;
    histogram_.add(ns > clock_cost_ ? ns - clock_cost_ : 0);
  }
  // Runs `operation`, timed if it is due.
  template <typename Operation>
  void run(Operation&& operation) {
    if (!due()) return operation();
    const uint64_t begin = now_ns();
    operation();
    add(begin, now_ns());
  }
  LatencyHistogram& histogram() { return histogram_; }

 private:
  uint64_t clock_cost_;
  uint32_t count_ = 0;
  LatencyHistogram histogram_;
};

}  // namespace lab
