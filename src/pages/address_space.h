// The address space of runs: regions, their extents, how much of them is committed, and which slabs
// are whole.
//
//   reserved_slabs_   = sum of slab_count over extents
//   committed_slabs_  = sum of committed_slabs over extents
//   whole_slabs_      = sum of |region->whole| over regions
//
// Lock: the page heap's.
#pragma once

#include "map/page_map.h"
#include "pages/purge_counts.h"

namespace loam {

class AddressSpace {
 public:
  /// The oldest region; `next` links the others.
  [[nodiscard]] Region* first_region() const { return regions_; }
  [[nodiscard]] size_t committed_slabs() const { return committed_slabs_; }
  [[nodiscard]] size_t whole_slabs() const { return whole_slabs_; }

  /// Commits `slabs` slabs that lie side by side. False when the system refuses.
  bool grow(unsigned slabs, PurgeCounts& counts);
  /// A whole slab, which is committed if there is none; null when the system refuses.
  [[nodiscard]] Slab* whole_slab(PurgeCounts& counts);
  /// All pages of the slab became free.
  void note_whole(Slab* slab) {
    Region* const region = region_of(slab);
    region->whole.set(region->number_of(slab));
    if (slab->dirty_pages != 0) region->whole_backed.set(region->number_of(slab));
    ++whole_slabs_;
  }
  /// A page of the whole slab will be used, or the slab released.
  void forget_whole(const Slab* slab);

  /// A place for a run of more than one slab.
  struct Place {
    Region* region = nullptr;  ///< null: none
    PageId page;
    Pages fresh{};  ///< how many of its pages are not backed
  };
  /// Finds the place with the fewest unbacked pages. `grain`: of its first page, a multiple of
  /// kPagesPerSlab
  [[nodiscard]] Place find(Pages pages, uint32_t grain);
  /// The number of places at which the last find() looked.
  [[nodiscard]] size_t places_looked_at() const { return places_looked_at_; }
  /// Whether `pages` pages are free, from the first page of the slab `first` on. At the end of the
  /// committed memory, more is committed.
  [[nodiscard]] bool has_free(Region* region, size_t first, size_t pages, PurgeCounts& counts);

  /// Whether the address lies in an extent.
  [[nodiscard]] bool reserves(uintptr_t address) const;
  /// Unmaps slabs at an end of an extent, of which `committed` were committed and forgotten, and
  /// `reserved` only reserved. The caller adapts the extent.
  void release(Region* region, uint32_t first, uint32_t committed, uint32_t reserved);
  /// The extent keeps the place of so many released slabs.
  void keep_reserved(uint32_t slabs) { reserved_slabs_ += slabs; }
  /// As PageHeap::lock_all_memory().
  int lock_all_memory(int flags);

  /// Purges records of regions that ever handed out more than `least`, at least `most` bytes where
  /// there are that many. Returns the purged bytes.
  LOAM_NOINLINE size_t purge_records(uint32_t least, size_t most);
  /// Purges what the maps hold of free slabs, in regions with at least `least` of them.
  LOAM_NOINLINE size_t purge_maps(unsigned least);

  void show(PageStats* out) const {
    out->reserved_bytes = reserved_slabs_ << kSlabShift;
    out->committed_bytes = committed_slabs_ << kSlabShift;
    for (const Region* region = regions_; region != nullptr; region = region->next)
      out->metadata_bytes += metadata_bytes(region);
  }

 private:
  friend struct CounterFields;
  bool commit(Region* region, Extent& extent, unsigned slabs, PurgeCounts& counts);
  /// Commits `slabs` slabs, the first one at `slab`. False when no uncommitted part of an extent
  /// begins there, or it is too short.
  bool commit_at(Region* region, uint32_t slab, unsigned slabs, PurgeCounts& counts);
  bool add_extent(unsigned slabs);
  bool place_extent(unsigned slabs);
  void append_region(Region* region);
  /// Releases the reserved address space, here and of the metadata, and calls os::stop_reserving().
  void stop_reserving();
  /// Calls for_each_idle_map() for all regions, and for_each_idle_directory().
  void for_each_idle_part(VisitPart visit);

  Region* regions_ = nullptr;  // oldest first
  unsigned whole_slabs_ = 0;
  unsigned halvings_ = 0;  // of the slabs of a new extent, when the system refuses kSlabsPerRegion
  size_t reserved_slabs_ = 0;
  size_t committed_slabs_ = 0;
  size_t places_looked_at_ = 0;
};

}  // namespace loam
