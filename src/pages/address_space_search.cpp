// Runs of more than one slab. They take consecutive whole slabs, and the free beginning of the
// slab behind them.
//
//   | used  . . | . . . . . | . . . . . | . . used |        .  free
//               ^------- a stretch ---------^
//
// They begin where a slab begins. So a run that shrinks to a slab's length or less lies in one
// slab. Every run of that length must, because it may be parked, or kept by its thread.
#include "pages/address_space.h"

namespace loam {

namespace {

// The length of the stretch that begins with these `count` whole slabs.
size_t stretch_pages(const Region* region, unsigned first, unsigned count) {
  const unsigned behind = first + count;
  // A slab that is not committed has no free pages.
  const unsigned more = behind < kSlabsPerRegion ? region->slabs[behind].free.find_clear(0) : 0;
  return size_t{count} * kPagesPerSlab + more;
}

// How many of these pages are backed. pre: all are free, and the first one begins a slab
size_t backed_pages(const Region* region, uint32_t first, size_t pages) {
  size_t backed = 0;
  const Slab* slab = &region->slabs[first / kPagesPerSlab];
  for (; pages >= kPagesPerSlab; pages -= kPagesPerSlab) backed += (slab++)->dirty_pages;
  if (pages != 0 && slab->dirty_pages != 0)
    backed += slab->backed.count_range(0, static_cast<unsigned>(pages));
  return backed;
}

// The first place for `pages` pages, at `start` or behind it, that reaches into memory that may be
// backed: a backed slab, or the free pages at the stretch's tail. pre: start is a multiple of
// grain
uint32_t next_backed_place(const Region* region, uint32_t start, uint32_t tail, Pages pages,
                           uint32_t grain) {
  const uint32_t backed = region->whole_backed.find_set(start / kPagesPerSlab) * kPagesPerSlab;
  const uint32_t next = backed < tail ? backed : tail;
  if (next < start + pages.count) return start;
  return static_cast<uint32_t>(round_up(next - pages.count + 1, grain));
}

}  // namespace

// Most free slabs are either backed completely or not at all, so the search looks at few places.
// In a stretch it stops at a place that needs no fresh page. Once it knows a place where all pages
// are fresh, it looks only at places that hold a backed slab. A region with a place that needs no
// fresh page is the last one, because later regions could offer only a shorter stretch.
AddressSpace::Place AddressSpace::find(Pages pages, uint32_t grain) {
  places_looked_at_ = 0;
  Place place;
  size_t least_fresh = pages.count + 1, shortest = ~size_t{0};
  for (Region* region = regions_; region != nullptr && least_fresh != 0; region = region->next) {
    region->whole.for_each_run([&](unsigned first_slab, unsigned count) {
      // These tests do not need a look at the slab behind the whole slabs.
      if ((size_t{count} + 1) * kPagesPerSlab <= pages.count) return;
      if (least_fresh == 0 && size_t{count} * kPagesPerSlab >= shortest) return;
      const uint32_t first = first_slab * kPagesPerSlab;
      const uint32_t tail = first + count * kPagesPerSlab;  // here the pages of a used slab begin
      const size_t length = stretch_pages(region, first_slab, count);
      for (uint32_t start = (first + grain - 1) & ~(grain - 1);
           start + pages.count <= first + length; start += grain) {
        if (least_fresh == 0 && length >= shortest) break;
        // A place without backed pages is no better.
        if (least_fresh < pages.count || (least_fresh == pages.count && length >= shortest)) {
          const uint32_t next = next_backed_place(region, start, tail, pages, grain);
          if (next != start) {
            start = next - grain;
            continue;
          }
        }
        ++places_looked_at_;
        const size_t fresh = pages.count - backed_pages(region, start, pages.count);
        if (fresh > least_fresh || (fresh == least_fresh && length >= shortest)) continue;
        least_fresh = fresh;
        shortest = length;
        place = {region, PageId(start), Pages(fresh)};
      }
    });
  }
  return place;
}

}  // namespace loam
