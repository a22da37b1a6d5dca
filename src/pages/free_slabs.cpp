#include "pages/free_slabs.h"

#include "os/os.h"

namespace loam {

namespace {

// Of the whole slabs in the region of one, the first that may have such a dirty run. So short runs
// use slabs side by side, and leave slabs side by side for long ones (decision 27).
Slab* first_whole(Slab* slab, unsigned need) {
  Region* const region = region_of(slab);
  for (unsigned number = region->whole_backed.find_set(0); number < kSlabsPerRegion;
       number = region->whole_backed.find_set(number + 1)) {
    if (region->slabs[number].dirty_bin >= need) return &region->slabs[number];
  }
  return slab;
}

}  // namespace

bool FreeSlabs::search(From from, unsigned index, unsigned count, unsigned alignment, Slab** slab,
                       Fit* fit) {
  // The test also saves a small program from touching the pages of an empty index.
  if (from == From::kDirty && dirty_pages_ == Pages(0)) return false;
  // A run of count + alignment - 1 pages surely holds an aligned one; a whole slab always does.
  unsigned need = count + alignment - 1;
  if (need > kPagesPerSlab) need = kPagesPerSlab;
  for (;;) {
    Slab* candidate =
        from == From::kDirty ? dirty_[index].smallest(need) : free_index(index).smallest(need);
    if (candidate == nullptr) return false;
    if (from == From::kDirty) {
      if (index == kWhole) candidate = first_whole(candidate, need);
      *fit = best_fit(dirty_bits(candidate), count, alignment);
      dirty_[index].place(candidate,
                          fit->found ? fit->longest_left : longest_run(dirty_bits(candidate)));
    } else {
      *fit = best_fit(candidate->free, count, alignment);
      free_index(index).place(candidate,
                              fit->found ? fit->longest_left : longest_run(candidate->free));
    }
    if (fit->found) {
      *slab = candidate;
      return true;
    }
    // The bound was too high. It is exact now and below `need`, so the loop makes progress.
  }
}

void FreeSlabs::activate(Slab* slab, RunKind kind, uint8_t shard) {
  const unsigned dirty_bin = slab->dirty_bin;
  dirty_[kWhole].place(slab, 0);
  slab->state = SlabState::kActive;
  slab->kind = kind;
  slab->shard = shard;
  dirty_[unsigned(kind)].place(slab, dirty_bin);
  free_index(unsigned(kind)).place(slab, kPagesPerSlab);
}

unsigned FreeSlabs::mark_used(Slab* slab, unsigned first, unsigned count) {
  const unsigned held = slab->backed.count_range(first, count);
  if (LOAM_UNLIKELY(slab->huge)) surplus_.remove(Pages(count - held));
  slab->free.clear_range(first, count);
  if (held != count) slab->backed.set_range(first, count);
  slab->free_pages = static_cast<uint16_t>(slab->free_pages - count);
  slab->dirty_pages = static_cast<uint16_t>(slab->dirty_pages - held);
  dirty_pages_ -= Pages(held);
  if (slab->dirty_pages == 0) {
    dirty_index(slab).place(slab, 0);
    if (held != 0) age_.remove(slab);
  }
  if (slab->free_pages == 0) free_index(unsigned(slab->kind)).place(slab, 0);
  return held;
}

bool FreeSlabs::mark_free(Slab* slab, unsigned first, unsigned count, uint32_t unbacked_mask,
                          uint64_t since_ms) {
  LOAM_ASSERT(dirty_bits(slab).copy().count_range(first, count) == 0);
  slab->free.set_range(first, count);
  const bool is_listed = slab->dirty_pages != 0;
  unsigned dirty = count;
  if (LOAM_UNLIKELY(unbacked_mask == kNoneBacked)) {
    slab->backed.clear_range(first, count);
    dirty = 0;
  } else {
    for (uint32_t mask = unbacked_mask; mask != 0; mask &= mask - 1) {
      slab->backed.clear(first + lowest_bit(mask));
      --dirty;
    }
  }
  slab->free_pages = static_cast<uint16_t>(slab->free_pages + count);
  slab->dirty_pages = static_cast<uint16_t>(slab->dirty_pages + dirty);
  dirty_pages_ += Pages(dirty);
  if (slab->dirty_pages != 0) note_age(slab, is_listed, since_ms);

  if (slab->free_pages == kPagesPerSlab) {
    free_index(unsigned(slab->kind)).place(slab, 0);
    dirty_[unsigned(slab->kind)].place(slab, 0);
    slab->state = SlabState::kWhole;
    refresh_dirty(slab);
    return true;
  }
  const unsigned free_run = run_around(slab->free, first, count);
  if (free_run > slab->free_bin) free_index(unsigned(slab->kind)).place(slab, free_run);
  if (unbacked_mask != 0) {
    refresh_dirty(slab);
  } else {
    const unsigned dirty_run = run_around(dirty_bits(slab), first, count);
    if (dirty_run > slab->dirty_bin) dirty_[unsigned(slab->kind)].place(slab, dirty_run);
  }
  return false;
}

// Puts the slab in the list of ages with a free at `since_ms`, which may be in the past: parked
// runs return to their slabs late.
void FreeSlabs::note_age(Slab* slab, bool is_listed, uint64_t since_ms) {
  const uint32_t since = static_cast<uint32_t>(since_ms);
  if (is_listed) {
    // The latest free counts.
    if (static_cast<int32_t>(since - slab->last_free_ms) <= 0) return;
    slab->last_free_ms = since;
    if (age_.back() == slab) return;
    age_.remove(slab);
  }
  slab->last_free_ms = since;
  // The search is bounded, because a nearly sorted list is good enough for the purge.
  Slab* after = age_.back();
  for (int steps = 0; steps < 16 && after != nullptr; ++steps) {
    if (static_cast<int32_t>(after->last_free_ms - since) <= 0) break;
    after = List<Slab, AgeList>::previous(after);
  }
  age_.insert_after(after, slab);
}

void FreeSlabs::refresh_dirty(Slab* slab) {
  dirty_index(slab).place(slab, longest_run(dirty_bits(slab)));
}

// Asks for a huge page in a slab whose pages are all free and not backed. Then the first touch
// backs all of them. Pages that no run took are surplus. They stay unbacked in the bitmaps, so
// requests take them last, as if they held nothing. A small heap asks for none, because the surplus
// of a slab costs too much there.
bool FreeSlabs::ask_for_huge(Slab* slab, Pages backed) {
  if (!surplus_.may_grow(slab->kind, backed)) return false;
  if (os::granularity() != kPageBytes || !os::is_reserving()) return false;
  if (!os::advise_huge(slab_base(slab), kSlabBytes, true)) return false;
  __atomic_store_n(&slab->huge, true, __ATOMIC_RELAXED);
  surplus_.add(Pages(kPagesPerSlab));
  return true;
}

// Purges the surplus pages of the slab. Call it also before other pages of the slab are purged.
// Otherwise the system (khugepaged) would back the gaps again, or the next touch would back the
// whole slab.
void FreeSlabs::end_huge(Slab* slab, PurgeCounts& counts, uint64_t now_ms) {
  char* const base = slab_base(slab);
  static_cast<void>(os::advise_huge(base, kSlabBytes, false));
  __atomic_store_n(&slab->huge, false, __ATOMIC_RELAXED);
  const bool is_listed = slab->dirty_pages != 0;
  unsigned refused = 0;
  for (unsigned first = slab->backed.find_clear(0); first < kPagesPerSlab;) {
    const unsigned end = slab->backed.find_set(first);
    const unsigned count = (end < kPagesPerSlab ? end : kPagesPerSlab) - first;
    surplus_.remove(Pages(count));
    if (os::purge(base + Pages(first).bytes(), Pages(count).bytes())) {
      counts.add(Pages(count));
    } else {
      slab->backed.set_range(first, count);
      refused += count;
    }
    first = slab->backed.find_clear(first + count);
  }
  if (refused == 0) return;
  counts.refuse();
  slab->dirty_pages = static_cast<uint16_t>(slab->dirty_pages + refused);
  dirty_pages_ += Pages(refused);
  if (!is_listed) note_age(slab, false, now_ms);
  refresh_dirty(slab);
}

void FreeSlabs::forget(Slab* slab, PurgeCounts& counts, uint64_t now_ms) {
  // Surplus pages become dirty where the system refuses to purge them, so the lists come
  // afterwards.
  if (LOAM_UNLIKELY(slab->huge)) end_huge(slab, counts, now_ms);
  dirty_index(slab).place(slab, 0);
  if (slab->dirty_pages != 0) age_.remove(slab);
  dirty_pages_ -= Pages(slab->dirty_pages);
  *slab = Slab{};
}

unsigned FreeSlabs::longest_backed_run() {
  unsigned longest = 0;
  for (DirtyIndex& index : dirty_) {
    // The bounds may be too high. They are corrected from the top until one is exact.
    while (index.longest() > longest) {
      Slab* slab = index.smallest(index.longest());
      const unsigned exact = longest_run(dirty_bits(slab));
      if (exact == slab->dirty_bin) {
        longest = exact;
      } else {
        index.place(slab, exact);
      }
    }
  }
  return longest;
}

bool FreeSlabs::is_valid(const Slab* slab) {
  const Both<kPagesPerSlab> dirty = dirty_bits(slab);
  if (slab->free.count() != slab->free_pages || dirty.count() != slab->dirty_pages) return false;
  if ((slab->state == SlabState::kWhole) != (slab->free_pages == kPagesPerSlab)) return false;
  if (longest_run(dirty) > slab->dirty_bin) return false;
  return slab->state != SlabState::kActive || longest_run(slab->free) <= slab->free_bin;
}

bool FreeSlabs::is_valid() const {
  for (const FreeIndex& index : free_) {
    if (!index.is_valid()) return false;
  }
  for (const DirtyIndex& index : dirty_) {
    if (!index.is_valid()) return false;
  }
  return age_.is_valid();
}

}  // namespace loam
