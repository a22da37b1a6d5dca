// The page heap's address space: extents, commits, and releases when space is scarce.
#include "base/check.h"
#include "map/metadata.h"
#include "os/charge.h"
#include "pages/page_heap.h"

namespace loam {

namespace {

// The most slabs that one call makes accessible: 64 MiB. Fewer means more calls while growing.
// More means commit charge that overcommit_memory=2 refuses.
constexpr size_t kMaxCommitSlabs = 32;

// If memory is locked, free slabs at an extent's end stay mapped up to this part of the heap.
// Chosen: a smaller part would map and fill them again for each long block; with a larger part more
// memory is locked without use.
constexpr size_t kIdleEndShare = 8;

// The most extents that are made for one request. Another mapping may take the place of an extent
// before the request is served. Chosen.
constexpr unsigned kGrowthAttempts = 4;

}  // namespace

void PageHeap::stop_reserving_locked() {
  if (!os::is_reserving()) return;
  for (Region* region = regions_; region != nullptr; region = region->next) {
    for (uint32_t i = 0; i < region->extent_count; ++i) {
      const Extent& extent = region->extents[i];
      const uint32_t left = extent.slab_count - extent.committed_slabs;
      if (left == 0) continue;
      const size_t first = extent.first_slab + extent.committed_slabs;
      os::release(reinterpret_cast<char*>(region->base) + (first << kSlabShift),
                  size_t{left} << kSlabShift);
    }
    return_reserved_records(region);
  }
  metadata.stop_reserving();
  for_each_idle_part(&os::unlock_zeros);
}

void PageHeap::for_each_idle_part(VisitPart visit) {
  for (Region* region = regions_; region != nullptr; region = region->next)
    for_each_idle_map(region, visit);
  for_each_idle_directory(regions_, visit);
}

void PageHeap::unmap_ends(size_t more_than) {
  for (Region* region = regions_; region != nullptr; region = region->next) {
    for (uint32_t i = 0; i < region->extent_count; ++i) {
      Extent& extent = region->extents[i];
      uint32_t tail = 0;
      while (tail < extent.committed_slabs &&
             region->whole.test(extent.first_slab + extent.committed_slabs - 1 - tail))
        ++tail;
      if (tail <= more_than) continue;
      release_slabs(region, extent.first_slab + extent.committed_slabs - tail, tail, 0);
      extent.committed_slabs -= tail;
      reserved_slabs_ += tail;  // the extent still has the place
    }
  }
}

// The kernel counts all mapped memory as locked, so a purge does not reduce the count.
void PageHeap::unmap_ends_if_locked() {
  if (LOAM_UNLIKELY(!os::is_reserving())) unmap_ends(committed_slabs_ / kIdleEndShare);
}

int PageHeap::lock_all_memory(int flags) {
  Lock lock(mutex_);
  stop_reserving_locked();
  bool done = os::lock_all_memory(flags, os::Locked::kAll);
  if (!done && os::is_single_threaded()) {
    // All mapped memory may exceed the limit. So idle parts are unmapped during the call; there is
    // no other thread that could read them.
    for_each_idle_part(&os::release);
    done = os::lock_all_memory(flags, os::Locked::kPresent);
    os::ErrnoGuard guard;
    for_each_idle_part([](void* begin, size_t bytes) {
      LOAM_CHECK(os::commit(begin, bytes),
                 "page map: the system took memory and does not give it back");
    });
    if (done) done = os::lock_all_memory(flags, os::Locked::kFuture);
  }
  os::ErrnoGuard guard;
  if (done) for_each_idle_part(&os::unlock_zeros);
  return done ? 0 : -1;
}

bool PageHeap::add_extent(unsigned slabs) {
  unsigned want = kSlabsPerRegion >> extent_halvings_;
  while (want < slabs) want *= 2;
  for (; want >= slabs && want >= 1; want /= 2) {
    const size_t bytes = size_t{want} << kSlabShift;
    void* memory = os::reserve(bytes, bytes);
    if (memory == nullptr && os::is_reserving() && os::locks_new_memory()) {
      stop_reserving_locked();  // the limit does not allow to lock this much
      memory = os::reserve(bytes, bytes);
    }
    if (memory == nullptr) continue;
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
    // The first region is not looked up, because a read of the directory before its first write
    // would cost a second fault.
    const bool looked_for = regions_ != nullptr && address >> kAddressBits == 0;
    Region* region = looked_for ? region_at(address) : nullptr;
    if (region == nullptr && address >> kAddressBits == 0) {
      region = add_region(address & ~(kRegionBytes - 1));
      if (region != nullptr) append_region(region);
    }
    if (region == nullptr || region->extent_count == kMaxExtents) {
      os::give_up(memory, bytes);
      continue;  // a region's header may fit after a smaller request
    }
    if (LOAM_UNLIKELY(!os::is_reserving())) for_each_idle_map(region, &os::unlock_zeros);
    const uint32_t first_slab = static_cast<uint32_t>((address - region->base) >> kSlabShift);
    region->extents[region->extent_count++] = Extent{first_slab, want, 0};
    reserved_slabs_ += want;
    while (want < kSlabsPerRegion >> extent_halvings_) ++extent_halvings_;
    return true;
  }
  return false;
}

void PageHeap::release_slabs(Region* region, uint32_t first, uint32_t committed,
                             uint32_t reserved) {
  for (uint32_t b = first; b < first + committed; ++b) forget_slab(&region->slabs[b]);
  const uint32_t mapped = os::is_reserving() ? committed + reserved : committed;
  if (mapped != 0) {
    os::release(reinterpret_cast<char*>(region->base) + (size_t{first} << kSlabShift),
                size_t{mapped} << kSlabShift);
  }
  committed_slabs_ -= committed;
  reserved_slabs_ -= committed + reserved;
}

bool PageHeap::release_idle_extents() {
  Lock lock(mutex_);
  release_parked();
  bool released = shed_all_mappings();
  for (Region* region = regions_; region != nullptr; region = region->next) {
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

void PageHeap::forget_slab(Slab* slab) {
  // Surplus pages become dirty where the system refuses to purge them, so the lists come
  // afterwards.
  if (LOAM_UNLIKELY(slab->huge)) end_huge(slab);
  dirty_index(slab).place(slab, 0);
  if (slab->dirty_pages != 0) age_.remove(slab);
  dirty_pages_ -= Pages(slab->dirty_pages);
  forget_whole(slab);
  *slab = Slab{};
}

void PageHeap::append_region(Region* region) {
  Region** tail = &regions_;
  while (*tail != nullptr) tail = &(*tail)->next;
  *tail = region;
}

// pre: `slabs` slabs of the extent are reserved and not committed
bool PageHeap::commit(Region* region, Extent& extent, unsigned slabs) {
  const uint32_t left = extent.slab_count - extent.committed_slabs;
  size_t step = committed_slabs_ / 8;
  if (step > kMaxCommitSlabs) step = kMaxCommitSlabs;
  if (step < slabs) step = slabs;
  if (step > left) step = left;
  if (os::kChargesCommit) step = slabs;
  const uint32_t first = extent.first_slab + extent.committed_slabs;
  char* address = reinterpret_cast<char*>(region->base) + (size_t{first} << kSlabShift);
  // The program may have locked all memory without a call of Loam. The last committed slab shows
  // it, unless the program locked that slab alone. The test is left out for the first slabs,
  // because it would cost a system call at the start of every program.
  if (os::is_reserving() && extent.committed_slabs != 0 && os::is_locked(address - 1) &&
      (os::is_locked(address) || os::locks_new_memory())) {
    stop_reserving_locked();
  }
  if (!os::is_reserving()) {
    step = slabs;  // locked memory is backed at once
    if (!lock_maps(region, first, slabs)) return false;
  }
  os::Committed got = os::commit_more(address, step << kSlabShift);
  if (got != os::Committed::kYes) {
    ++refused_calls_;
    if (got == os::Committed::kRefused && step != slabs) {
      step = slabs;
      got = os::commit_more(address, step << kSlabShift);
    }
    if (got == os::Committed::kTaken) {  // the place has another mapping, so the extent ends here
      reserved_slabs_ -= left;
      extent.slab_count = extent.committed_slabs;
    }
    if (got != os::Committed::kYes) return false;
  }
  // If the system backed any 2 MiB by a huge page, one byte written in each of many slabs would
  // cost 2 MiB a slab. A refusal needs no action, because that system has no such pages.
  static_cast<void>(os::advise_huge(address, step << kSlabShift, false));
  for (uint32_t b = first; b < first + step; ++b) {
    Slab& slab = region->slabs[b];
    slab.free.set_range(0, kPagesPerSlab);
    slab.free_pages = kPagesPerSlab;
    slab.state = SlabState::kWhole;
    region->whole.set(b);
  }
  extent.committed_slabs += static_cast<uint32_t>(step);
  committed_slabs_ += step;
  whole_slabs_ += static_cast<unsigned>(step);
  return true;
}

bool PageHeap::commit_at(Region* region, uint32_t slab, unsigned slabs) {
  for (uint32_t i = 0; i < region->extent_count; ++i) {
    Extent& extent = region->extents[i];
    if (extent.first_slab + extent.committed_slabs != slab) continue;
    if (extent.slab_count - extent.committed_slabs >= slabs) return commit(region, extent, slabs);
  }
  return false;
}

bool PageHeap::reserves(uintptr_t address) {
  Lock lock(mutex_);
  const Region* region = region_at(address);
  if (region == nullptr) return false;
  const uint32_t slab = static_cast<uint32_t>((address - region->base) / kSlabBytes);
  for (uint32_t i = 0; i < region->extent_count; ++i) {
    const Extent& extent = region->extents[i];
    if (slab - extent.first_slab < extent.slab_count) return true;
  }
  return false;
}

bool PageHeap::grow(unsigned slabs) {
  if (slabs > kSlabsPerRegion) return false;
  for (unsigned attempt = 0; attempt < kGrowthAttempts; ++attempt) {
    for (Region* region = regions_; region != nullptr; region = region->next) {
      for (uint32_t i = 0; i < region->extent_count; ++i) {
        Extent& extent = region->extents[i];
        if (extent.slab_count - extent.committed_slabs < slabs) continue;
        if (commit(region, extent, slabs)) return true;
        if (extent.slab_count != extent.committed_slabs) return false;
      }
    }
    if (!add_extent(slabs)) return false;
  }
  return false;
}

}  // namespace loam
