// A count that only the holder of a lock changes, so plain stores suffice, and that any thread may
// read.
#pragma once

#include <atomic>
#include <cstddef>

namespace loam {

class LockedCount {
 public:
  operator size_t() const { return value_.load(std::memory_order_relaxed); }
  void operator+=(size_t more) { value_.store(*this + more, std::memory_order_relaxed); }
  void operator-=(size_t fewer) { value_.store(*this - fewer, std::memory_order_relaxed); }

 private:
  std::atomic<size_t> value_{0};
};

}  // namespace loam
