#include "pages/page_heap.h"

#include "os/charge.h"
#include "os/os.h"

namespace loam {

constinit PageHeap page_heap;

// ---- taking -----------------------------------------------------------------------------------

void PageHeap::activate(Slab* slab, Taker taker) {
  if (slab->state == SlabState::kActive) return;
  space_.forget_whole(slab);
  slabs_.activate(slab, taker.kind, taker.shard);
}

PageHeap::Place PageHeap::take_in_slab(unsigned count, unsigned alignment, Taker taker,
                                       Source source) {
  const unsigned own = unsigned(taker.kind);
  const unsigned other = own ^ 1u;
  Slab* slab = nullptr;
  Fit fit;
  const auto search_backed = [&] {
    return slabs_.search(FreeSlabs::From::kDirty, own, count, alignment, &slab, &fit) ||
           slabs_.search(FreeSlabs::From::kDirty, FreeSlabs::kWhole, count, alignment, &slab, &fit);
  };
  if (search_backed() || search_parked(count, alignment, taker, &slab, &fit)) {
    activate(slab, taker);
  } else if (source == Source::kBacked) {
    return {};
  } else if (slabs_.search(FreeSlabs::From::kFree, own, count, alignment, &slab, &fit) ||
             slabs_.search(FreeSlabs::From::kDirty, other, count, alignment, &slab, &fit)) {
    activate(slab, taker);
  } else {
    slab = take_whole_slab(taker);
    // Runs that are reserved for other shards' threads are better than a failure.
    if (slab == nullptr && pages_in_shards() != Pages(0)) {
      release_parked();
      if (search_backed()) activate(slab, taker);
    }
    if (slab == nullptr &&
        !slabs_.search(FreeSlabs::From::kFree, other, count, alignment, &slab, &fit))
      return {};
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
  release_pages(place.region, place.page, pages, FreeSlabs::kNoneBacked, clock_.now_ms());
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

unsigned PageHeap::mark_used(Slab* slab, unsigned first, unsigned count) {
  if (slab->free_pages == kPagesPerSlab && slab->dirty_pages == 0 && !slab->huge &&
      slabs_.ask_for_huge(slab, backed()))
    note_dirty();
  const unsigned held = slabs_.mark_used(slab, first, count);
  fresh_.take(count - held);
  return held;
}

// Ends huge pages until at most `surplus` pages are surplus.
void PageHeap::end_huge_pages(Pages surplus) {
  for (Region* region = space_.first_region(); region != nullptr; region = region->next) {
    for (unsigned b = 0; b < kSlabsPerRegion; ++b) {
      if (slabs_.surplus().pages() <= surplus) return;
      Slab* const slab = &region->slabs[b];
      if (slab->huge && slab->backed.find_clear(0) < kPagesPerSlab)
        slabs_.end_huge(slab, purges_, clock_.now_ms());
    }
  }
}

// ---- giving back ------------------------------------------------------------------------------

// Exact except for runs that other threads park at this moment; those threads call this function
// too. Only a program that keeps less than the floor pays for the sum.
void PageHeap::note_waiting() {
  if (hints_.waiting() + pages_in_shards() > PurgePolicy::kFloor) hints_.set_pages_wait(true);
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
    Slab* const slab = &region->slabs[page / kPagesPerSlab];
    // Pages of a huge page went.
    if (LOAM_UNLIKELY(slab->huge) && unbacked_mask != 0)
      slabs_.end_huge(slab, purges_, clock_.now_ms());
    if (slabs_.mark_free(slab, offset, here, unbacked_mask, since_ms)) space_.note_whole(slab);
    note_dirty();
    page += here;
    left -= here;
  }
}

void PageHeap::count_operation() {
  // A heap that was never large has nothing to fall by, and touches nothing more.
  if (clock_.ends_count() ||
      LOAM_UNLIKELY(policy_.peak() > PurgePolicy::kFallFloor &&
                    policy_.may_fall(slabs_.dirty() + standing_spans_.waiting())))
    tick_locked();
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
  hints_.use_shard(shard);  // also the shard of a thread without a cache
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
      const Pages freed(span->large.pages);
      fresh_.of_long_runs().note_free(span_base(span));
      release_large(span, clock_.now_ms());
      unmap_ends_if_locked();
      pay_after_long_free(freed);
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
  const unsigned places = hints_.shards_in_use() + 1;
  for (unsigned i = 0; i < places; ++i) {
    const unsigned number = kind == RunKind::kSpan ? i : (i + 1) % places;
    ParkedRuns& parked = this->parked(number);
    if (number == ParkedRuns::kSpansRuns) {
      // The test also saves a small program from touching the pages of empty lists.
      if (standing_spans_.waiting() != Pages(0) && visit(parked, number)) return true;
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
    standing_spans_.remove_waiting(pages);
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
      if (slabs_.search(FreeSlabs::From::kDirty, unsigned(kind), count, alignment, slab, fit) ||
          slabs_.search(FreeSlabs::From::kDirty, FreeSlabs::kWhole, count, alignment, slab, fit)) {
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
    for (size_t left = 64 + (is_spans ? standing_spans_.waiting().count / 512 : 0); left != 0;
         --left) {
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
  s.parked = standing_spans_.waiting() + in_shards;
  s.dirty = slabs_.dirty() + slabs_.surplus().pages() + s.parked + idle;
  s.peak_used = policy_.peak();
  purges_.show(&s);
  large_.show(&s);
  s.fresh_pages = fresh_.of_runs();
  s.longest_backed_run_bytes = Pages(slabs_.longest_backed_run()).bytes();
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
      if (!FreeSlabs::is_valid(slab)) return false;
      free_pages += slab->free_pages;
      dirty += slab->dirty_pages;
      if (slab->huge) surplus += kPagesPerSlab - slab->backed.count();
      const bool is_whole = slab->state == SlabState::kWhole;
      if (is_whole != region->whole.test(i)) return false;
      if ((is_whole && slab->dirty_pages != 0) != region->whole_backed.test(i)) return false;
      whole += is_whole;
    }
  }
  if (!slabs_.is_valid()) return false;
  if (!place_is_valid(ParkedRuns::kSpansRuns, standing_spans_.waiting())) return false;
  for (unsigned i = 0; i < kPageShards; ++i) {
    Lock its(shards_[i].mutex);
    if (!place_is_valid(1 + i, Pages(shards_[i].parked_pages))) return false;
    for (Region* region = space_.first_region(); region != nullptr; region = region->next) {
      uint32_t spares = 0;
      for (uint32_t n = region->spares[i].first; n != 0; n = region->spans[n].first_page) ++spares;
      if (spares != region->spares[i].count) return false;
    }
  }
  return dirty == slabs_.dirty().count && surplus == slabs_.surplus().pages().count &&
         whole == space_.whole_slabs() &&
         free_pages + used_.count + standing_spans_.waiting().count ==
             space_.committed_slabs() * kPagesPerSlab;
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
