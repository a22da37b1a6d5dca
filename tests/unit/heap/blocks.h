// Live blocks of the heap with their content, for tests on the real system. Every block is filled
// with bytes of its own, which are checked at its end.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "heap/heap.h"
#include "random.h"

namespace loam::test {

/// heap::start(), once in this process: two suites of one program would hook fork() twice.
inline void start_once() {
  static const bool started = (heap::start(), true);
  static_cast<void>(started);
}

class Blocks {
 public:
  ~Blocks() { free_all(); }

  /// Registers a block that holds at least `bytes`, and fills it.
  void add(void* block, size_t bytes) {
    ASSERT_NE(block, nullptr) << bytes << " bytes";
    const uintptr_t address = reinterpret_cast<uintptr_t>(block);
    ASSERT_GE(heap::usable_size(block), bytes);
    const auto after = live_.upper_bound(address);
    if (after != live_.end()) {
      ASSERT_LE(address + std::max<size_t>(bytes, 1), after->first);
    }
    if (after != live_.begin()) {
      const auto before = std::prev(after);
      ASSERT_LE(before->first + std::max<size_t>(before->second.bytes, 1), address) << "overlap";
    }
    const unsigned char fill = static_cast<unsigned char>(++count_ % 255 + 1);
    mark(block, bytes, fill);
    live_[address] = {bytes, fill};
    order_.push_back(address);
  }

  void check(void* block) const {
    const Block& b = live_.at(reinterpret_cast<uintptr_t>(block));
    ASSERT_TRUE(marked(block, b.bytes, b.fill)) << b.bytes << " bytes at " << block;
  }

  void free(void* block) {
    check(block);
    forget(block);
    heap::free(block);
  }

  /// Forgets a block that was freed or moved.
  void forget(void* block) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(block);
    live_.erase(address);
    order_.erase(std::find(order_.begin(), order_.end(), address));
  }

  [[nodiscard]] void* random(Random& random) {
    // The entry is swapped to the end, so that forgetting it is cheap.
    std::swap(order_[random.below(order_.size())], order_.back());
    std::swap(order_.front(), order_.back());
    return reinterpret_cast<void*>(order_.front());
  }
  [[nodiscard]] size_t bytes(void* block) const {
    return live_.at(reinterpret_cast<uintptr_t>(block)).bytes;
  }
  [[nodiscard]] unsigned char fill(void* block) const {
    return live_.at(reinterpret_cast<uintptr_t>(block)).fill;
  }
  [[nodiscard]] bool empty() const { return live_.empty(); }
  [[nodiscard]] size_t size() const { return live_.size(); }
  [[nodiscard]] std::vector<void*> all() const {
    std::vector<void*> result;
    for (const uintptr_t address : order_) result.push_back(reinterpret_cast<void*>(address));
    return result;
  }

  void free_all() {
    for (void* block : all()) {
      check(block);
      heap::free(block);
    }
    live_.clear();
    order_.clear();
  }

  /// Large blocks carry their mark at both ends and every few pages. That is enough to notice a
  /// neighbour's write or a purge, without touching gigabytes.
  static void mark(void* block, size_t bytes, unsigned char fill) {
    unsigned char* p = static_cast<unsigned char*>(block);
    if (bytes <= kWhole) {
      memset(p, fill, bytes);
      return;
    }
    for (size_t i = 0; i < bytes; i += kStep) p[i] = fill;
    p[bytes - 1] = fill;
  }
  [[nodiscard]] static bool marked(const void* block, size_t bytes, unsigned char fill) {
    const unsigned char* p = static_cast<const unsigned char*>(block);
    const size_t step = bytes <= kWhole ? 1 : kStep;
    for (size_t i = 0; i < bytes; i += step) {
      if (p[i] != fill) return false;
    }
    return bytes == 0 || p[bytes - 1] == fill;
  }
  static constexpr size_t kWhole = 128 << 10;
  static constexpr size_t kStep = 7 * 4096;

 private:
  struct Block {
    size_t bytes;
    unsigned char fill;
  };
  std::map<uintptr_t, Block> live_;
  std::vector<uintptr_t> order_;
  size_t count_ = 0;
};

}  // namespace loam::test
