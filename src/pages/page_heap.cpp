#include "pages/page_heap.h"

#include "os/charge.h"
#include "os/os.h"

namespace loam {

constinit PageHeap page_heap;

namespace {

// A run that no request took for this long joins its neighbours. Chosen: longer than a round of
// most programs, and far shorter than PurgePolicy::kSoonMs, after which it may be purged.
constexpr uint64_t kParkedMs = 100;

}  // namespace

// ---- taking -----------------------------------------------------------------------------------

bool PageHeap::search(From from, unsigned index, unsigned count, unsigned alignment, Slab** slab,
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

void PageHeap::activate(Slab* slab, Taker taker) {
  if (slab->state == SlabState::kActive) return;
  const unsigned dirty_bin = slab->dirty_bin;
  dirty_[kRunKinds].place(slab, 0);
  space_.forget_whole(slab);
  slab->state = SlabState::kActive;
  slab->kind = taker.kind;
  slab->shard = taker.shard;
  dirty_[unsigned(taker.kind)].place(slab, dirty_bin);
  free_index(unsigned(taker.kind)).place(slab, kPagesPerSlab);
}

PageHeap::Place PageHeap::take_in_slab(unsigned count, unsigned alignment, Taker taker,
                                       Source source) {
  const unsigned own = unsigned(taker.kind);
  const unsigned other = own ^ 1u;
  Slab* slab = nullptr;
  Fit fit;
  const auto search_backed = [&] {
    return search(From::kDirty, own, count, alignment, &slab, &fit) ||
           search(From::kDirty, kRunKinds, count, alignment, &slab, &fit);
  };
  if (search_backed() || search_parked(count, alignment, taker, &slab, &fit)) {
    activate(slab, taker);
  } else if (source == Source::kBacked) {
    return {};
  } else if (search(From::kFree, own, count, alignment, &slab, &fit) ||
             search(From::kDirty, other, count, alignment, &slab, &fit)) {
    activate(slab, taker);
  } else {
    slab = take_whole_slab(taker);
    // Runs that are reserved for other shards' threads are better than a failure.
    if (slab == nullptr && pages_in_shards() != Pages(0)) {
      release_parked();
      if (search_backed()) activate(slab, taker);
    }
    if (slab == nullptr && !search(From::kFree, other, count, alignment, &slab, &fit)) return {};
    if (!fit.found) fit.first = 0;
  }
  Place place;
  place.region = region_of(slab);
  place.page = first_page_of(slab) + Pages(fit.first);
  if (count <= kMaxSpanPages) {
    place.unbacked =
        ~slab->backed.bits_at(fit.first, count) & static_cast<uint32_t>(bit_range(0, count));
  }
  place.zero = mark_used(slab, fit.first, count) == 0;
  // The first touch of a huge page backs all of it.
  if (LOAM_UNLIKELY(slab->huge)) place.unbacked = 0;
  return place;
}

Slab* PageHeap::take_whole_slab(Taker taker) {
  Slab* const slab = space_.whole_slab(purges_);
  if (slab != nullptr) activate(slab, taker);
  return slab;
}

// Takes a run of more than one slab (address_space_search.cpp).
PageHeap::Place PageHeap::take_slabs(Pages pages, Pages alignment, Taker taker) {
  const auto slabs_of = [](Pages p) {
    return static_cast<unsigned>((p.count + kPagesPerSlab - 1) / kPagesPerSlab);
  };
  const uint32_t grain =
      alignment.count <= kPagesPerSlab ? kPagesPerSlab : static_cast<uint32_t>(alignment.count);
  release_parked();
  AddressSpace::Place found = space_.find(pages, grain);
  if (found.region == nullptr && space_.grow(slabs_of(pages) + slabs_of(alignment) - 1, purges_))
    found = space_.find(pages, grain);
  if (found.region == nullptr) return {};
  use_slabs(&found.region->slabs[found.page.index / kPagesPerSlab], pages.count, taker);
  return {found.region, found.page, found.fresh == pages};
}

// Marks `pages` pages used, from the slab's first page on. pre: they are free
void PageHeap::use_slabs(Slab* slab, size_t pages, Taker taker) {
  for (; pages != 0; ++slab) {
    const unsigned here = pages < kPagesPerSlab ? static_cast<unsigned>(pages) : kPagesPerSlab;
    activate(slab, taker);
    mark_used(slab, 0, here);
    pages -= here;
  }
}

// Commits purged pages again. If the system refuses that even after all kept mappings are released,
// the run is purged and freed, because a part of it may be committed and hold old content.
inline bool PageHeap::commit_place(const Place& place, Pages pages) {
  void* const address = place.region->page_address(place.page);
  if (os::commit_again(address, pages.bytes())) return true;
  purges_.refuse();
  if (mappings_.shed_all(purges_) && os::commit_again(address, pages.bytes())) return true;
  LOAM_CHECK(os::discard(address, pages.bytes()),
             "page heap: the system neither gives memory nor takes it");
  release_pages(place.region, place.page, pages, kNoneBacked, clock_.now_ms());
  return false;
}

PageHeap::Place PageHeap::take(Pages pages, Pages alignment, Taker taker, Source source) {
  const bool is_long = pages.count > kPagesPerSlab || alignment.count > kPagesPerSlab;
  const uint64_t fresh_before = fresh_.of_runs();
  const auto find = [&] {
    return LOAM_LIKELY(!is_long)
               ? take_in_slab(static_cast<unsigned>(pages.count),
                              static_cast<unsigned>(alignment.count), taker, source)
               : take_slabs(pages, alignment, taker);
  };
  Place place = find();
  // Kept mappings may hold all the memory that the system allows, so the call tries again without
  // them.
  if (place.region == nullptr && source == Source::kAny && mappings_.shed_all(purges_))
    place = find();
  if (place.region == nullptr) return place;
  place.fresh = static_cast<uint32_t>(fresh_.of_runs() - fresh_before);
  used_ += pages;
  if (os::kChargesCommit && place.fresh != 0 && !commit_place(place, pages)) return {};
  note_peak();
  if (LOAM_UNLIKELY(is_long)) {
    const auto address = reinterpret_cast<uintptr_t>(place.region->page_address(place.page));
    note_growth(Pages(place.fresh), {address, pages});
  }
  if (place.fresh != 0) bound_idle(Pages(place.fresh));
  return place;
}

// Returns the used pages. Runs that shards hand out meanwhile are counted at the next look.
Pages PageHeap::note_peak() {
  const Pages used = really_used();
  policy_.observe(used);
  return used;
}

// Asks for a huge page in a slab whose pages are all free and not backed. Then the first touch
// backs all of them. Pages that no run took are surplus. They stay unbacked in the bitmaps, so
// requests take them last, as if they held nothing. A small heap asks for none, because the surplus
// of a slab costs too much there.
void PageHeap::ask_for_huge(Slab* slab) {
  if (!huge_.may_grow(slab->kind, backed())) return;
  if (os::granularity() != kPageBytes || !os::is_reserving()) return;
  if (!os::advise_huge(slab_base(slab), kSlabBytes, true)) return;
  __atomic_store_n(&slab->huge, true, __ATOMIC_RELAXED);
  huge_.add(Pages(kPagesPerSlab));
  note_dirty();
}

// Purges the surplus pages of the slab. Call it also before other pages of the slab are purged.
// Otherwise the system (khugepaged) would back the gaps again, or the next touch would back the
// whole slab.
void PageHeap::end_huge(Slab* slab) {
  char* const base = slab_base(slab);
  static_cast<void>(os::advise_huge(base, kSlabBytes, false));
  __atomic_store_n(&slab->huge, false, __ATOMIC_RELAXED);
  const bool is_listed = slab->dirty_pages != 0;
  unsigned refused = 0;
  for (unsigned first = slab->backed.find_clear(0); first < kPagesPerSlab;) {
    const unsigned end = slab->backed.find_set(first);
    const unsigned count = (end < kPagesPerSlab ? end : kPagesPerSlab) - first;
    huge_.remove(Pages(count));
    if (os::purge(base + Pages(first).bytes(), Pages(count).bytes())) {
      purges_.add(Pages(count));
    } else {
      slab->backed.set_range(first, count);
      refused += count;
    }
    first = slab->backed.find_clear(first + count);
  }
  if (refused == 0) return;
  purges_.refuse();
  slab->dirty_pages = static_cast<uint16_t>(slab->dirty_pages + refused);
  dirty_pages_ += Pages(refused);
  if (!is_listed) note_age(slab, false, clock_.now_ms());
  refresh_dirty(slab);
}

// Ends huge pages until at most `surplus` pages are surplus.
void PageHeap::end_huge_pages(Pages surplus) {
  for (Region* region = space_.first_region(); region != nullptr; region = region->next) {
    for (unsigned b = 0; b < kSlabsPerRegion; ++b) {
      if (huge_.pages() <= surplus) return;
      Slab* const slab = &region->slabs[b];
      if (slab->huge && slab->backed.find_clear(0) < kPagesPerSlab) end_huge(slab);
    }
  }
}

unsigned PageHeap::mark_used(Slab* slab, unsigned first, unsigned count) {
  const unsigned held = slab->backed.count_range(first, count);
  if (slab->free_pages == kPagesPerSlab && slab->dirty_pages == 0 && !slab->huge)
    ask_for_huge(slab);
  if (LOAM_UNLIKELY(slab->huge)) huge_.remove(Pages(count - held));
  slab->free.clear_range(first, count);
  if (held != count) slab->backed.set_range(first, count);
  slab->free_pages = static_cast<uint16_t>(slab->free_pages - count);
  slab->dirty_pages = static_cast<uint16_t>(slab->dirty_pages - held);
  dirty_pages_ -= Pages(held);
  fresh_.take(count - held);
  if (slab->dirty_pages == 0) {
    dirty_index(slab).place(slab, 0);
    if (held != 0) age_.remove(slab);
  }
  if (slab->free_pages == 0) free_index(unsigned(slab->kind)).place(slab, 0);
  return held;
}

// ---- giving back ------------------------------------------------------------------------------

void PageHeap::mark_free(Slab* slab, unsigned first, unsigned count, uint32_t unbacked_mask,
                         uint64_t since_ms) {
  LOAM_ASSERT(dirty_bits(slab).copy().count_range(first, count) == 0);
  if (LOAM_UNLIKELY(slab->huge) && unbacked_mask != 0) end_huge(slab);  // pages of it went
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
  note_dirty();
  if (slab->dirty_pages != 0) note_age(slab, is_listed, since_ms);

  if (slab->free_pages == kPagesPerSlab) {
    free_index(unsigned(slab->kind)).place(slab, 0);
    dirty_[unsigned(slab->kind)].place(slab, 0);
    slab->state = SlabState::kWhole;
    space_.note_whole(slab);
    refresh_dirty(slab);
    return;
  }
  const unsigned free_run = run_around(slab->free, first, count);
  if (free_run > slab->free_bin) free_index(unsigned(slab->kind)).place(slab, free_run);
  if (unbacked_mask != 0) {
    refresh_dirty(slab);
  } else {
    const unsigned dirty_run = run_around(dirty_bits(slab), first, count);
    if (dirty_run > slab->dirty_bin) dirty_[unsigned(slab->kind)].place(slab, dirty_run);
  }
}

// Puts the slab in the list of ages with a free at `since_ms`, which may be in the past: parked
// runs return to their slabs late.
void PageHeap::note_age(Slab* slab, bool is_listed, uint64_t since_ms) {
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

// Exact except for runs that other threads park at this moment; those threads call this function
// too. Only a program that keeps less than the floor pays for the sum.
void PageHeap::note_waiting() {
  if (hints_.waiting() + pages_in_shards() > PurgePolicy::kFloor) hints_.set_pages_wait(true);
}

void PageHeap::refresh_dirty(Slab* slab) {
  dirty_index(slab).place(slab, longest_run(dirty_bits(slab)));
}

void PageHeap::release_pages(Region* region, PageId first, Pages pages, uint32_t unbacked_mask,
                             uint64_t since_ms) {
  used_ -= pages;
  uint32_t page = first.index;
  size_t left = pages.count;
  while (left != 0) {
    const unsigned offset = page % kPagesPerSlab;
    const unsigned here =
        left < kPagesPerSlab - offset ? static_cast<unsigned>(left) : kPagesPerSlab - offset;
    mark_free(&region->slabs[page / kPagesPerSlab], offset, here, unbacked_mask, since_ms);
    page += here;
    left -= here;
  }
}

void PageHeap::count_operation() {
  if (clock_.ends_count()) tick_locked();
}

// ---- the public calls -------------------------------------------------------------------------

PageHeap::Run PageHeap::allocate_large(Pages pages, Pages alignment, size_t requested, uint8_t heap,
                                       unsigned shard) {
  Span* parked = nullptr;
  if (alignment.count == 1 && pages.count <= kPagesPerSlab) {
    const unsigned more = heap == 0 ? slack_of(pages) : 0;
    parked = take_run_anywhere(static_cast<unsigned>(pages.count), more, shard, true);
  }
  Lock lock(mutex_);
  if (parked != nullptr) {
    parked->large.requested = requested;
    parked->large.cached_at =
        0;  // in a run of a private heap these two are owned.run and owned.reciprocal
    parked->large.parked_ms = 0;
    // release: if the run was part of a batch, its page already names it. A look-up of a stale
    // pointer then finds no run.
    __atomic_store_n(&parked->heap, heap, __ATOMIC_RELEASE);
    publish_large(parked);
    large_.add(parked);
    count_operation();
    return {parked};
  }
  use_shard(shard);  // also the shard of a thread without a cache
  const Taker taker{RunKind::kLarge, static_cast<uint8_t>(shard)};
  const Place place = take(pages, alignment, taker, Source::kAny);
  if (place.region == nullptr) return {};
  Span* span = take_record(place.region);
  if (span == nullptr) {
    release_pages(place.region, place.page, pages, 0, clock_.now_ms());
    return {};
  }
  span->first_page = place.page.index;
  span->heap = heap;
  span->kind = SpanKind::kLarge;
  span->large.pages = pages.count;
  span->large.requested = requested;
  large_.add(span);
  publish_large(span);
  count_operation();
  return {span, place.fresh, place.zero};
}

void PageHeap::free(Span* span) {
  Lock lock(mutex_);
  clock_.read();  // the time stamp of the freed pages
  if (span->kind == SpanKind::kLarge) {
    large_.remove(span);
    unpublish_large(span);
    span->heap = 0;
    if (span->large.pages <= kPagesPerSlab) {
      {
        Lock its(shards_[shard_of(span)].mutex);
        park_large(span, clock_.now_ms());
      }
      note_parked();
    } else {
      fresh_.of_long_runs().note_free(span_base(span));
      release_large(span, clock_.now_ms());
      unmap_ends_if_locked();
      pay_after_long_free();
    }
  } else {
    free_span(span);
  }
  count_operation();
}

void PageHeap::release_large(Span* span, uint64_t since_ms, uint32_t unbacked_mask) {
  Region* region = region_of(span);
  const PageId first(span->first_page);
  const Pages pages(span->large.pages);
  return_span_record(region, span);
  release_pages(region, first, pages, unbacked_mask, since_ms);
}

template <class Visit>
bool PageHeap::for_each_parked(RunKind kind, unsigned own, Visit visit) {
  const unsigned places = shards_in_use() + 1;
  for (unsigned i = 0; i < places; ++i) {
    const unsigned number = kind == RunKind::kSpan ? i : (i + 1) % places;
    ParkedRuns& parked = this->parked(number);
    if (number == ParkedRuns::kSpansRuns) {
      // The test also saves a small program from touching the pages of empty lists.
      if (parked_pages_ != Pages(0) && visit(parked, number)) return true;
      continue;
    }
    PageShard& shard = shards_[number - 1];
    // relaxed: a run that is parked a moment later is missed
    if (__atomic_load_n(&shard.parked_pages, __ATOMIC_RELAXED) == 0) continue;
    if (own != kNoShard && own != number - 1 && is_reserved(shard)) continue;
    Lock lock(shard.mutex);
    if (visit(parked, number)) return true;
  }
  return false;
}

unsigned PageHeap::join_entry(unsigned number, Span* entry) {
  const uint64_t since_ms = entry->standing.since_ms;
  if (number == ParkedRuns::kSpansRuns) {
    park_span(entry, since_ms);
    return 1;
  }
  const auto runs = static_cast<unsigned>(entry->standing.runs);
  Span* rest = entry->standing.rest;
  for (Span* run = entry; run != nullptr;) {
    unpublish_large(run);
    parked(number).push(run, number, since_ms);
    run = rest;
    if (run != nullptr) rest = List<Span>::next(run);
  }
  return runs;
}

bool PageHeap::join_standing(unsigned number, unsigned most) {
  unsigned joined = 0;
  while (joined < most) {
    Span* const entry = pop_standing(number, UINT64_MAX);
    if (entry == nullptr) break;
    joined += join_entry(number, entry);
  }
  return joined != 0;
}

// pre: the lock of the place where it was parked is held
void PageHeap::release_parked(Span* span) {
  const Pages pages(span->large.pages);
  if (span->list == ParkedRuns::kSpansRuns) {
    parked_pages_ -= pages;
    used_ += pages;
  } else {
    PageShard& shard = shards_[span->list - 1];
    set_parked(shard, shard.parked_pages - pages.count);
  }
  release_large(span, span->large.parked_ms);
}

void PageHeap::release_parked() {
  for_each_parked(RunKind::kSpan, kNoShard, [&](ParkedRuns& parked, unsigned number) {
    static_cast<void>(join_standing(number, ~0u));
    while (Span* span = parked.pop_longest()) release_parked(span);
    return false;
  });
}

// Joins parked runs with their neighbours until a backed run is found that fits. It joins as few as
// possible, and those of the same kind first.
bool PageHeap::search_parked(unsigned count, unsigned alignment, Taker taker, Slab** slab,
                             Fit* fit) {
  const RunKind kind = taker.kind;
  const auto search_in = [&](ParkedRuns& parked, unsigned number) {
    while (!parked.empty() || join_standing(number, kJoinedAtOnce)) {
      unsigned joined = 0;
      if (Span* span = parked.pop_fitting(count)) {
        release_parked(span);
        joined = kJoinedAtOnce;
      }
      for (; joined < kJoinedAtOnce; ++joined) {
        Span* span = parked.pop_longest();
        if (span == nullptr) break;
        release_parked(span);
      }
      if (search(From::kDirty, unsigned(kind), count, alignment, slab, fit) ||
          search(From::kDirty, kRunKinds, count, alignment, slab, fit)) {
        return true;
      }
    }
    return false;
  };
  return for_each_parked(kind, taker.shard, search_in);
}

// Joins runs that have waited for longer than kParkedMs, a bounded number at each look.
void PageHeap::release_old_parked() {
  if ((!clock_.is_due(PageClock::kParked, 1) && !hints_.is_behind()) || clock_.now_ms() < kParkedMs)
    return;
  clock_.note(PageClock::kParked);
  const uint64_t before_ms = clock_.now_ms() - kParkedMs;
  for_each_parked(RunKind::kSpan, kNoShard, [&](ParkedRuns& parked, unsigned number) {
    const bool is_spans = number == ParkedRuns::kSpansRuns;
    for (size_t left = 64 + (is_spans ? parked_pages_.count / 512 : 0); left != 0; --left) {
      Span* const entry = pop_standing(number, before_ms);
      if (entry == nullptr) break;
      join_entry(number, entry);
    }
    unsigned length = 1;
    for (size_t left = 64 + parked.count() / 32; left != 0; --left) {
      Span* span = parked.pop_older(before_ms, &length);
      if (span == nullptr) break;
      release_parked(span);
    }
    if (!is_spans) return_spares(number - 1);
    return false;
  });
}

PageStats PageHeap::stats() {
  Lock lock(mutex_);
  PageStats s{};
  const Pages idle = mappings_.idle().pages();
  space_.show(&s);
  s.reserved_bytes += idle.bytes();
  s.committed_bytes += idle.bytes();
  s.used = note_peak();
  const Pages in_shards = used_ - s.used;
  s.parked = parked_pages_ + in_shards;
  s.dirty = dirty_pages_ + huge_.pages() + s.parked + idle;
  s.peak_used = policy_.peak();
  purges_.show(&s);
  large_.show(&s);
  s.fresh_pages = fresh_.of_runs();
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
  s.longest_backed_run_bytes = Pages(longest).bytes();
  return s;
}

void PageHeap::count_runs(RunCounts* out) {
  Lock lock(mutex_);
  *out = RunCounts{};
  for (const Region* region = space_.first_region(); region != nullptr; region = region->next) {
    for (uint32_t i = 0; i < region->extent_count; ++i) {
      const Extent& extent = region->extents[i];
      out->uncommitted += extent.committed_slabs < extent.slab_count;
      for (uint32_t b = extent.first_slab; b < extent.first_slab + extent.committed_slabs; ++b) {
        const Slab& slab = region->slabs[b];
        if (slab.free_pages == 0) continue;
        PageBits clean = slab.free;
        for (unsigned w = 0; w < PageBits::kWords; ++w) clean.words[w] &= ~slab.backed.words[w];
        dirty_bits(&slab).for_each_run([&](unsigned, unsigned n) { ++out->dirty[highest_bit(n)]; });
        clean.for_each_run([&](unsigned, unsigned n) { ++out->clean[highest_bit(n)]; });
      }
    }
  }
}

namespace {

// Whether the map names the empty span as when it had blocks.
bool stands_whole(const Span* span) {
  const Region* region = region_of(span);
  for (uint32_t page = span->first_page; page < span->first_page + span->page_count; ++page) {
    if (&region->spans[region->page_span[page]] != span ||
        region->page_class[page] != index_of(span->size_class))
      return false;
  }
  return span->kind == SpanKind::kStanding;
}

}  // namespace

bool PageHeap::slab_is_valid(const Slab* slab) const {
  const Both<kPagesPerSlab> dirty = dirty_bits(slab);
  if (slab->free.count() != slab->free_pages || dirty.count() != slab->dirty_pages) return false;
  if ((slab->state == SlabState::kWhole) != (slab->free_pages == kPagesPerSlab)) return false;
  if (longest_run(dirty) > slab->dirty_bin) return false;
  return slab->state != SlabState::kActive || longest_run(slab->free) <= slab->free_bin;
}

// Whether the runs that wait at a place are as they should be, and have so many pages. pre: the
// place's lock is held
bool PageHeap::place_is_valid(unsigned number, Pages waiting) {
  if (!parked(number).is_valid(number)) return false;
  Pages pages = parked(number).pages();
  if (number == ParkedRuns::kSpansRuns) {
    if (!standing_spans_.is_valid()) return false;
    for (unsigned length = 0; length <= kMaxSpanPages; ++length) {
      for (const Span* span : standing_spans_.of_length(length).entries()) {
        if (!stands_whole(span) || span->page_count != length) return false;
        pages += Pages(length);
      }
    }
    return pages == waiting;
  }
  const List<Span>& batches = shards_[number - 1].standing.entries();
  if (!batches.is_valid()) return false;
  for (const Span* batch : batches) {
    uint64_t left = batch->standing.runs;
    for (const Span* run = batch; run != nullptr;
         run = run == batch ? batch->standing.rest : List<Span>::next(run)) {
      if (left-- == 0 || run->kind != SpanKind::kStanding || run->size_class != kNoClass ||
          run->large.pages != batch->standing.pages)
        return false;
      if (shard_of(run) + 1 != number || span_at(span_base(run)) != run) return false;
      pages += Pages(run->large.pages);
    }
    if (left != 0) return false;
  }
  return pages == waiting;
}

bool PageHeap::is_valid() {
  Lock lock(mutex_);
  size_t free_pages = 0, dirty = 0, whole = 0, surplus = 0;
  for (const Region* region = space_.first_region(); region != nullptr; region = region->next) {
    if (!region->free_records.is_valid(region->free_record_bits) ||
        !purged_records_are_valid(region))
      return false;
    if (!purged_maps_are_valid(region)) return false;
    for (unsigned i = 0; i < kSlabsPerRegion; ++i) {
      const Slab* slab = &region->slabs[i];
      if (slab->state == SlabState::kUncommitted) continue;
      if (!slab_is_valid(slab)) return false;
      free_pages += slab->free_pages;
      dirty += slab->dirty_pages;
      if (slab->huge) surplus += kPagesPerSlab - slab->backed.count();
      const bool is_whole = slab->state == SlabState::kWhole;
      if (is_whole != region->whole.test(i)) return false;
      if ((is_whole && slab->dirty_pages != 0) != region->whole_backed.test(i)) return false;
      whole += is_whole;
    }
  }
  for (const FreeIndex& index : free_) {
    if (!index.is_valid()) return false;
  }
  for (const DirtyIndex& index : dirty_) {
    if (!index.is_valid()) return false;
  }
  if (!place_is_valid(ParkedRuns::kSpansRuns, parked_pages_)) return false;
  for (unsigned i = 0; i < kPageShards; ++i) {
    Lock its(shards_[i].mutex);
    if (!place_is_valid(1 + i, Pages(shards_[i].parked_pages))) return false;
    for (Region* region = space_.first_region(); region != nullptr; region = region->next) {
      uint32_t spares = 0;
      for (uint32_t n = region->spares[i].first; n != 0; n = region->spans[n].first_page) ++spares;
      if (spares != region->spares[i].count) return false;
    }
  }
  return age_.is_valid() && dirty == dirty_pages_.count && surplus == huge_.pages().count &&
         whole == space_.whole_slabs() &&
         free_pages + used_.count + parked_pages_.count == space_.committed_slabs() * kPagesPerSlab;
}

void PageHeap::lock_all() {
  mutex_.lock();
  for (PageShard& shard : shards_) shard.mutex.lock();
}

void PageHeap::unlock_all() {
  for (PageShard& shard : shards_) shard.mutex.unlock();
  mutex_.unlock();
}

void PageHeap::reset_locks_after_fork() {
  mutex_.reset_after_fork();
  for (PageShard& shard : shards_) shard.mutex.reset_after_fork();
}

}  // namespace loam
