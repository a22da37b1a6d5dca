// The search for the next run in the slab that short spans fill.
#include "pages/filling_slab.h"

#include "pages/run_search.h"

namespace loam {

namespace {

// The most pages that one request passes in the slab that short spans fill. Chosen: a pause of a
// fraction of a microsecond. A request that finds nothing there takes a run of another slab.
constexpr uint32_t kPassedPerRequest = 64;

}  // namespace

bool FillingSlab::search(unsigned count, Span** run) {
  const Slab* const slab = &region_->slabs[next_.index / kPagesPerSlab];
  const uint32_t begin = next_.index / kPagesPerSlab * kPagesPerSlab;
  const uint32_t end = begin + kPagesPerSlab;
  uint32_t page = next_.index;
  const uint32_t stop = page + kPassedPerRequest < end ? page + kPassedPerRequest : end;
  // The slab may have become whole meanwhile, or have changed its kind.
  if (slab->state != SlabState::kActive || slab->kind != RunKind::kSpan) page = end;
  while (page < stop) {
    const unsigned offset = page - begin;
    if (!slab->free.test(offset)) {
      *run = free_run_at(region_, page, ParkedRuns::kSpansRuns);
      if (*run == nullptr || (*run)->first_page != page) {
        ++page;  // used, or the end of a run that began before the page
      } else if ((*run)->large.pages < count) {
        page += static_cast<uint32_t>((*run)->large.pages);
      } else {
        next_ = PageId(page);
        return true;
      }
      continue;
    }
    const auto dirty = dirty_bits(slab);
    unsigned next = dirty.find_set(offset);
    if (next == offset) {
      next = dirty.find_clear(offset);
      if (next - offset >= count) {
        *run = nullptr;
        next_ = PageId(page);
        return true;
      }
    } else if (const unsigned used = slab->free.find_clear(offset); used < next) {
      next = used;  // unbacked pages are passed at once
    }
    page = begin + next;
  }
  move_to(page);
  return false;
}

}  // namespace loam
