// When a slab asks for a huge page, and the surplus pages that this brought: pages that no run took
// of the slabs that asked. A touch of one page backs all of them (decision 97).
//
// Lock: the page heap's, but for use() and is_always().
#pragma once

#include <atomic>

#include "map/records.h"
#include "os/os.h"

namespace loam {

/// The part of the heap's memory that may be surplus when another slab asks for a huge page. So a
/// heap of less than 32 MiB asks for none. Measured against 8, 32 and 64 (decision 97): a larger
/// part makes smaller heaps faster, a smaller part limits the memory that a growing heap holds
/// beyond its use.
inline constexpr size_t kSurplusShare = 16;
/// The same if the user asked for huge pages: twice as much, so from 16 MiB on.
inline constexpr size_t kSurplusShareAlways = kSurplusShare / 2;

class HugeSurplus {
 public:
  /// For which memory the heap asks the system to use huge pages.
  enum class When : uint8_t {  // in the order of LOAM_HUGE_PAGES's values
    kLargeHeaps,  ///< slabs for spans, while at most the 16th part of the heap is surplus
    kAlways,      ///< all runs, while at most the 8th part is surplus, and mappings of their own
    kNever,
  };
  void use(When when) { when_.store(when, std::memory_order_relaxed); }
  /// Whether a block's own mapping asks for huge pages. Where the system's pages are larger than
  /// ours, it has no huge pages of 2 MiB and is not asked.
  [[nodiscard]] bool is_always() const {
    return when_.load(std::memory_order_relaxed) == When::kAlways &&
           os::granularity() == kPageBytes;
  }
  /// Whether a slab for runs of this kind should ask, in a heap that holds `backed` pages.
  [[nodiscard]] bool may_grow(RunKind kind, Pages backed) const {
    const When when = when_.load(std::memory_order_relaxed);
    if (when == When::kNever || (kind != RunKind::kSpan && when != When::kAlways)) return false;
    const size_t share = when == When::kAlways ? kSurplusShareAlways : kSurplusShare;
    return pages_.count + kPagesPerSlab <= backed.count / share;
  }

  [[nodiscard]] Pages pages() const { return pages_; }
  void add(Pages pages) { pages_ += pages; }
  void remove(Pages pages) { pages_ -= pages; }
  /// The surplus that is likely to be needed soon: as many pages as were taken fresh since the last
  /// call. `fresh`: pages taken fresh so far
  [[nodiscard]] Pages needed_soon(uint64_t fresh) {
    const Pages needed(fresh - fresh_at_look_);
    fresh_at_look_ = fresh;
    return needed;
  }

 private:
  friend struct CounterFields;
  std::atomic<When> when_{When::kLargeHeaps};
  Pages pages_{};
  uint64_t fresh_at_look_ = 0;
};

}  // namespace loam
