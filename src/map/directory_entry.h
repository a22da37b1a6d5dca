// An entry of the directory of regions (page_map.h): zero, or where a region's class bytes are. It
// is written once, by add_region(); every thread reads it, without a lock. tests/interleaving runs
// these functions in every order of their steps.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/config.h"

namespace loam {

class DirectoryEntry {
 public:
  /// The region's header is filled before.
  void publish(uintptr_t classes) {
    // release publishes the header; pairs with the acquire in read()
    classes_.store(classes, std::memory_order_release);
  }
  /// For any address.
  [[nodiscard]] LOAM_INLINE uintptr_t read() const {
    // acquire pairs with the release in publish(); on x86-64 a plain load
    return classes_.load(std::memory_order_acquire);
  }
  /// For a block's address: of a block that lives.
  [[nodiscard]] LOAM_INLINE uintptr_t read_of_live() const {
    // relaxed: a live block's region was published before the block was, by whatever handed us the
    // pointer
    return classes_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<uintptr_t> classes_{0};
};

}  // namespace loam
