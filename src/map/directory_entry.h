// An entry of the directory of regions (page_map.h): zero, or the address of a region's class
// bytes. add_region() writes it once; every thread reads it without a lock. tests/interleaving runs
// these functions in every order of their steps.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/config.h"

namespace loam {

class DirectoryEntry {
 public:
  /// pre: the region's header is filled in
  void publish(uintptr_t classes) {
    // release publishes the header; pairs with the acquire in read()
    classes_.store(classes, std::memory_order_release);
  }
  /// Answers for any address.
  [[nodiscard]] LOAM_INLINE uintptr_t read() const {
    // acquire pairs with the release in publish(); on x86-64 a plain load
    return classes_.load(std::memory_order_acquire);
  }
  /// Answers for the address of a live block.
  [[nodiscard]] LOAM_INLINE uintptr_t read_of_live() const {
    // relaxed: the region was published before the live block's pointer was handed out, and the
    // transfer of the pointer orders the two
    return classes_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<uintptr_t> classes_{0};
};

}  // namespace loam
