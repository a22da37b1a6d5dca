// Counts the blocks that are runs of pages.
//
// Lock: the page heap's.
#pragma once

#include "map/records.h"
#include "pages/page_stats.h"

namespace loam {

/// The requested size of a large run whose pages are set aside for a heap and count as no block.
inline constexpr size_t kNobodysBlock = 0;

class LargeAccount {
 public:
  void add(const Span* run) {
    if (LOAM_UNLIKELY(run->large.requested == kNobodysBlock)) return;
    ++blocks_;
    ++allocations_;
    pages_ += Pages(run->large.pages);
    requested_ += run->large.requested;
  }
  void remove(const Span* run) {
    if (LOAM_UNLIKELY(run->large.requested == kNobodysBlock)) return;
    --blocks_;
    pages_ -= Pages(run->large.pages);
    requested_ -= run->large.requested;
  }
  /// The run is about to have so many pages, and so many bytes requested.
  void resize(const Span* run, Pages pages, size_t requested) {
    if (LOAM_UNLIKELY(requested == kNobodysBlock)) return;
    pages_ = pages_ + pages - Pages(run->large.pages);
    requested_ = requested_ + requested - run->large.requested;
  }

  void show(PageStats* out) const {
    out->large_blocks = blocks_;
    out->large_pages = pages_;
    out->large_requested = requested_;
    out->large_allocations = allocations_;
  }

 private:
  friend struct CounterFields;
  size_t blocks_ = 0;
  Pages pages_{};
  size_t requested_ = 0;
  uint64_t allocations_ = 0;
};

}  // namespace loam
