// A count that is changed under a lock, so that plain stores suffice, and read by anybody.
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
