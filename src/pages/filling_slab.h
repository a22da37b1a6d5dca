// The slab that short spans fill, one span behind the other, so that other slabs become
// whole.
//
//   | passed . . . . . | next . . . . . |     `next` names a page of the slab, or there is no slab
//
// Each page is passed once, even if pages behind it become free again. At its end the slab is
// dropped, and begin() names the next one. Only backed pages serve, parked or free in the bitmap.
//
// Lock: the page heap's.
#pragma once

#include "pages/parked_runs.h"

namespace loam {

class FillingSlab {
 public:
  [[nodiscard]] bool empty() const { return region_ == nullptr; }
  [[nodiscard]] Region* region() const { return region_; }
  [[nodiscard]] PageId next() const { return next_; }

  /// Makes the slab of that page the next one to fill, from its beginning on, unless a slab is
  /// being filled.
  LOAM_INLINE void begin(Region* region, PageId page) {
    if (region_ != nullptr) return;
    region_ = region;
    next_ = PageId(page.index / kPagesPerSlab * kPagesPerSlab);
  }

  /// Moves next() to the next run of at least `count` backed pages. `*run` is the parked run, or
  /// null if the pages are free in the bitmap. False if there is none in the pages that one request
  /// may pass. pre: not empty()
  LOAM_INLINE bool find(unsigned count, Span** run) {
    // Usually this is the rest of the run that served the last request.
    *run = free_run_at(region_, next_.index, ParkedRuns::kSpansRuns);
    return LOAM_LIKELY(*run != nullptr && (*run)->first_page == next_.index &&
                       (*run)->large.pages >= count) ||
           search(count, run);
  }

  /// The request took the `count` pages at next().
  LOAM_INLINE void pass(unsigned count) { move_to(next_.index + count); }

 private:
  LOAM_NOINLINE bool search(unsigned count, Span** run);
  LOAM_INLINE void move_to(uint32_t page) {
    next_ = PageId(page);
    if (page % kPagesPerSlab == 0) region_ = nullptr;
  }

  Region* region_ = nullptr;  // null: no slab
  PageId next_{};
};

}  // namespace loam
