// loam::request_histogram: how often each size was requested, and which cut-off a cache should
// have.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "loam/detail/size_steps.hpp"

namespace loam {

/// Counts requests by size, eight classes a doubling up to 1 TiB (larger ones share the last
/// class). About 4 KiB. One thread at a time may use it.
class request_histogram {
  using steps = detail::size_steps<8>;

 public:
  static constexpr std::size_t kClasses = steps::index(std::size_t{1} << 40) + 1;

  struct entry {
    std::uint64_t requests = 0;
    std::size_t largest = 0;  // bytes; the largest request of this class
  };

  /// Counts a request; zero bytes count as one. O(1).
  void add(std::size_t bytes) noexcept {
    if (bytes == 0) bytes = 1;
    entry& e = entries_[std::min(steps::index(bytes), kClasses - 1)];
    ++e.requests;
    if (bytes > e.largest) e.largest = bytes;
    ++total_;
  }

  [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
  /// Classes in ascending order of size. pre: i < kClasses
  [[nodiscard]] const entry& operator[](std::size_t i) const noexcept { return entries_[i]; }

  /// Adds what another histogram counted. O(kClasses).
  void merge(const request_histogram& other) noexcept {
    for (std::size_t i = 0; i < kClasses; ++i) {
      entries_[i].requests += other.entries_[i].requests;
      entries_[i].largest = std::max(entries_[i].largest, other.entries_[i].largest);
    }
    total_ += other.total_;
  }

  /// The cut-off that these requests suggest for a cache: the smallest size s, among the largest of
  /// each class, for which "requests up to s are at least `share` of all" cannot be ruled out:
  ///
  ///   F(s) + 2 sqrt(F(s) (1 - F(s)) / n) >= share,    F(s) = requests up to s / n
  ///
  /// This is the quantile `share` of the sizes, less two standard errors of a binomial count
  /// (Wald), so that a share that is met exactly does not jump a class by chance. The article that
  /// the caches stem from settled on three in four: a cache then keeps the common sizes, and not
  /// the long tail, which costs memory for few hits. 0 without requests. O(kClasses).
  [[nodiscard]] std::size_t suggested_cutoff(double share = 0.75) const noexcept {
    std::size_t last = 0;
    std::uint64_t seen = 0;
    const auto n = static_cast<double>(total_);
    for (const entry& e : entries_) {
      if (e.requests == 0) continue;
      last = e.largest;
      seen += e.requests;
      const double f = static_cast<double>(seen) / n;
      if (f + 2 * std::sqrt(f * (1 - f) / n) >= share) break;
    }
    return last;
  }

 private:
  entry entries_[kClasses];
  std::uint64_t total_ = 0;
};

}  // namespace loam
