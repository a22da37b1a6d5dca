#include "pages/address_space.h"

#include "base/check.h"
#include "map/metadata.h"
#include "os/charge.h"

namespace loam {

namespace {

// The most slabs that one call makes accessible: 64 MiB. Fewer means more calls while growing.
// More means commit charge that overcommit_memory=2 refuses.
constexpr size_t kMaxCommitSlabs = 32;

// Bound: the most extents that are made for one request, which is then refused. Another mapping may
// take the place of an extent before the request is served.
constexpr unsigned kGrowthAttempts = 4;

}  // namespace

void AddressSpace::stop_reserving() {
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

void AddressSpace::for_each_idle_part(VisitPart visit) {
  for (Region* region = regions_; region != nullptr; region = region->next)
    for_each_idle_map(region, visit);
  for_each_idle_directory(regions_, visit);
}

int AddressSpace::lock_all_memory(int flags) {
  stop_reserving();
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

bool AddressSpace::add_extent(unsigned slabs) {
  if (LOAM_LIKELY(place_extent(slabs))) return true;
  // Address space is scarce: what is only reserved goes back for what is used. A region's header
  // alone reserves 18 MiB.
  if (!os::is_reserving() || !os::can_stop_reserving()) return false;
  stop_reserving();
  return place_extent(slabs);
}

bool AddressSpace::place_extent(unsigned slabs) {
  unsigned want = kSlabsPerRegion >> halvings_;
  while (want < slabs) want *= 2;
  for (; want >= slabs && want >= 1; want /= 2) {
    const size_t bytes = size_t{want} << kSlabShift;
    void* memory = os::reserve(bytes, bytes);
    if (memory == nullptr && os::is_reserving() && os::locks_new_memory()) {
      stop_reserving();  // the limit does not allow to lock this much
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
    while (want < kSlabsPerRegion >> halvings_) ++halvings_;
    return true;
  }
  return false;
}

void AddressSpace::release(Region* region, uint32_t first, uint32_t committed, uint32_t reserved) {
  const uint32_t mapped = os::is_reserving() ? committed + reserved : committed;
  if (mapped != 0) {
    os::release(reinterpret_cast<char*>(region->base) + (size_t{first} << kSlabShift),
                size_t{mapped} << kSlabShift);
  }
  committed_slabs_ -= committed;
  reserved_slabs_ -= committed + reserved;
}

void AddressSpace::append_region(Region* region) {
  Region** tail = &regions_;
  while (*tail != nullptr) tail = &(*tail)->next;
  *tail = region;
}

// pre: `slabs` slabs of the extent are reserved and not committed
bool AddressSpace::commit(Region* region, Extent& extent, unsigned slabs, PurgeCounts& counts) {
  const uint32_t left = extent.slab_count - extent.committed_slabs;
  size_t step = committed_slabs_ / 8;
  if (step > kMaxCommitSlabs) step = kMaxCommitSlabs;
  if (step < slabs) step = slabs;
  if (step > left) step = left;
  if (os::kChargesCommit) step = slabs;
  const uint32_t first = extent.first_slab + extent.committed_slabs;
  char* address = reinterpret_cast<char*>(region->base) + (size_t{first} << kSlabShift);
  if (!os::is_reserving()) {
    step = slabs;  // locked memory is backed at once
    if (!lock_maps(region, first, slabs)) return false;
  }
  os::Committed got = os::commit_more(address, step << kSlabShift);
  if (got != os::Committed::kYes) {
    counts.refuse();
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
  // The program may have locked all memory without a call of Loam. The new memory shows it, and so
  // does the reserved memory behind it. The test is left out for the first slabs, because it would
  // cost a system call at the start of every program.
  const bool is_last = step == left;
  const size_t grain = os::granularity();
  bool locked = false;
  if (os::is_reserving() && extent.committed_slabs != 0 &&
      os::is_new_memory_locked(address + (step << kSlabShift) - grain,
                               is_last ? grain : 2 * grain)) {
    locked = true;
    step = slabs;  // the others go with the reserved memory
    static_cast<void>(lock_maps(region, first, slabs));
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
  if (LOAM_UNLIKELY(locked)) stop_reserving();
  return true;
}

bool AddressSpace::commit_at(Region* region, uint32_t slab, unsigned slabs, PurgeCounts& counts) {
  for (uint32_t i = 0; i < region->extent_count; ++i) {
    Extent& extent = region->extents[i];
    if (extent.first_slab + extent.committed_slabs != slab) continue;
    if (extent.slab_count - extent.committed_slabs >= slabs)
      return commit(region, extent, slabs, counts);
  }
  return false;
}

bool AddressSpace::has_free(Region* region, size_t first, size_t pages, PurgeCounts& counts) {
  for (size_t b = first; pages != 0; ++b) {
    if (b == kSlabsPerRegion) return false;
    const size_t here = pages < kPagesPerSlab ? pages : kPagesPerSlab;
    Slab& slab = region->slabs[b];
    if (slab.state == SlabState::kUncommitted) {
      const auto slabs = static_cast<unsigned>((pages + kPagesPerSlab - 1) / kPagesPerSlab);
      return commit_at(region, static_cast<uint32_t>(b), slabs, counts);
    }
    if (slab.free.find_clear(0) < here) return false;
    pages -= here;
  }
  return true;
}

bool AddressSpace::reserves(uintptr_t address) const {
  const Region* region = region_at(address);
  if (region == nullptr) return false;
  const uint32_t slab = static_cast<uint32_t>((address - region->base) / kSlabBytes);
  for (uint32_t i = 0; i < region->extent_count; ++i) {
    const Extent& extent = region->extents[i];
    if (slab - extent.first_slab < extent.slab_count) return true;
  }
  return false;
}

bool AddressSpace::grow(unsigned slabs, PurgeCounts& counts) {
  if (slabs > kSlabsPerRegion) return false;
  for (unsigned attempt = 0; attempt < kGrowthAttempts; ++attempt) {
    for (Region* region = regions_; region != nullptr; region = region->next) {
      for (uint32_t i = 0; i < region->extent_count; ++i) {
        Extent& extent = region->extents[i];
        if (extent.slab_count - extent.committed_slabs < slabs) continue;
        if (commit(region, extent, slabs, counts)) return true;
        if (extent.slab_count != extent.committed_slabs) return false;
      }
    }
    if (!add_extent(slabs)) return false;
  }
  return false;
}

Slab* AddressSpace::whole_slab(PurgeCounts& counts) {
  if (whole_slabs_ == 0 && !grow(1, counts)) return nullptr;
  for (Region* region = regions_; region != nullptr; region = region->next) {
    const unsigned i = region->whole.find_set(0);
    if (i < kSlabsPerRegion) return &region->slabs[i];
  }
  fatal("page heap: the count of whole slabs and the regions disagree");
}

void AddressSpace::forget_whole(const Slab* slab) {
  Region* region = region_of(slab);
  region->whole.clear(region->number_of(slab));
  region->whole_backed.clear(region->number_of(slab));
  --whole_slabs_;
  if (LOAM_UNLIKELY(region->maps_purged != 0)) note_maps_used(region, region->number_of(slab));
}

size_t AddressSpace::purge_maps(unsigned least) {
  size_t purged = 0;
  for (Region* region = regions_; region != nullptr; region = region->next)
    purged += purge_idle_maps(region, least);
  return purged;
}

size_t AddressSpace::purge_records(uint32_t least, size_t most) {
  size_t purged = 0;
  for (Region* region = regions_; region != nullptr && purged < most; region = region->next) {
    if (region->spans_used > least) purged += purge_free_records(region, most - purged);
  }
  return purged;
}

}  // namespace loam
