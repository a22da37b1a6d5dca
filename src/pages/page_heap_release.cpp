// The page heap gives address space back: when the system refuses more, or the program locks its
// memory.
#include "os/os.h"
#include "pages/page_heap.h"

namespace loam {

namespace {

// If memory is locked, free slabs at an extent's end stay mapped up to this part of the heap.
// Chosen: a smaller part would map and fill them again for each long block; with a larger part more
// memory is locked without use.
constexpr size_t kIdleEndShare = 8;

}  // namespace

void PageHeap::unmap_ends(size_t more_than) {
  if (os::is_watched()) return;
  for (Region* region = space_.first_region(); region != nullptr; region = region->next) {
    for (uint32_t i = 0; i < region->extent_count; ++i) {
      Extent& extent = region->extents[i];
      uint32_t tail = 0;
      while (tail < extent.committed_slabs &&
             region->whole.test(extent.first_slab + extent.committed_slabs - 1 - tail))
        ++tail;
      if (tail <= more_than) continue;
      release_slabs(region, extent.first_slab + extent.committed_slabs - tail, tail, 0);
      extent.committed_slabs -= tail;
      space_.keep_reserved(tail);  // the extent still has the place
    }
  }
}

// The kernel counts all mapped memory as locked, so a purge does not reduce the count.
void PageHeap::unmap_ends_if_locked() {
  if (LOAM_UNLIKELY(!os::is_reserving())) unmap_ends(space_.committed_slabs() / kIdleEndShare);
}

bool PageHeap::release_idle_extents() {
  Lock lock(mutex_);
  release_parked();
  bool released = mappings_.shed_all(purges_);
  if (os::is_watched()) return released;
  for (Region* region = space_.first_region(); region != nullptr; region = region->next) {
    for (uint32_t i = 0; i < region->extent_count;) {
      Extent& extent = region->extents[i];
      const uint32_t first = extent.first_slab, committed = extent.committed_slabs;
      const uint32_t untouched = extent.slab_count - committed;
      uint32_t head = 0, tail = 0;
      while (head < committed && region->whole.test(first + head)) ++head;
      if (head == committed) {
        release_slabs(region, first, committed, untouched);
        extent = region->extents[--region->extent_count];
        released = true;
        continue;
      }
      // The extent has used slabs: only its ends go.
      while (region->whole.test(first + committed - 1 - tail)) ++tail;
      if (tail + untouched != 0) release_slabs(region, first + committed - tail, tail, untouched);
      if (head != 0) release_slabs(region, first, head, 0);
      released |= head + tail + untouched != 0;
      extent = Extent{first + head, committed - head - tail, committed - head - tail};
      ++i;
    }
  }
  return released;
}

void PageHeap::release_slabs(Region* region, uint32_t first, uint32_t committed,
                             uint32_t reserved) {
  for (Slab* slab = &region->slabs[first]; slab != &region->slabs[first + committed]; ++slab) {
    space_.forget_whole(slab);
    slabs_.forget(slab, purges_, clock_.now_ms());
  }
  space_.release(region, first, committed, reserved);
}

}  // namespace loam
