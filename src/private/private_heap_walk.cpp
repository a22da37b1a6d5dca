// Reads of a private heap: walk, summary, figures, validation; and compact, which reads first.
//
// A walk's cursor: { generation, base of the run, serial of the run, step in the run }. A step of a
// span: 0 the region itself, 1 .. kMaxSpanPages its pages that were given back, then its slots.
#include "pages/huge_map.h"
#include "private/private_heap.h"

namespace loam {

namespace {

constexpr size_t kFirstSlotStep = kMaxSpanPages + 1;

HeapRun* run_based_at(uintptr_t base) {
  HeapRun* run = private_run_at(reinterpret_cast<void*>(base));
  if (run == nullptr) {
    const HugeMap::Entry entry = huge_map.find(base);
    if (entry.heap != 0) run = reinterpret_cast<HeapRun*>(entry.heap);
  }
  return run != nullptr && run->base == base ? run : nullptr;
}

void describe_region(const HeapRun* run, loam_walk_entry* entry) {
  entry->kind = LOAM_ENTRY_REGION;
  entry->address = reinterpret_cast<void*>(run->base);
  entry->bytes = run->bytes;
  entry->uncommitted_bytes = Pages(count_bits(run->span->unbacked_pages)).bytes();
  entry->committed_bytes = run->bytes - entry->uncommitted_bytes;
  entry->first = entry->address;
  entry->last = run->slot_address(run->slots);
  entry->overhead = run->bytes - run->offset_of(run->slots);
}

// The end of the slot or, in a mixed run, of the block or the free stretch that begins there.
size_t end_of_slot(HeapRun* run, size_t slot) {
  if (run->use != RunUse::kMixed) return slot + 1;
  if (load_state(run->state_of(slot), run->exact) != kSlotFree) return run->end_of(slot);
  size_t end = slot;
  while (end < run->slots && run->is_free(end)) ++end;
  // Never zero, so that a walk always moves on.
  return end == slot ? end + 1 : end;
}

// The cursor of an entry that came without one, from its other fields: the run in which its address
// lies, and the step that led there. Null when no such entry can exist.
HeapRun* restore_cursor(const loam_walk_entry& entry, size_t* cursor) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(entry.address);
  HeapRun* run = private_run_at(entry.address);
  if (run == nullptr) run = run_based_at(address);
  if (run == nullptr) return nullptr;
  const size_t offset = address - run->base;
  cursor[2] = run->serial;
  cursor[3] = 0;
  if (run->slots == 0 || entry.kind == LOAM_ENTRY_REGION) return offset == 0 ? run : nullptr;
  if (entry.kind == LOAM_ENTRY_UNCOMMITTED) {
    const size_t end = offset + entry.bytes;
    cursor[3] = end / kPageBytes;
    return end % kPageBytes == 0 && end <= run->bytes ? run : nullptr;
  }
  const size_t slot = run->slot_from(offset);
  if (slot >= run->slots || offset != run->offset_of(slot)) return nullptr;
  cursor[3] = kFirstSlotStep + end_of_slot(run, slot) - 1;
  return run;
}

}  // namespace

loam_status PrivateHeap::walk_next(loam_walk_entry* entry) {
  Lock lock(mutex_);
  size_t* cursor = entry->cursor;
  HeapRun* run;
  size_t step;
  size_t region = 0;
  if (entry->address == nullptr) {
    run = runs_.front();
    step = 0;
  } else {
    run = cursor[0] == 0              ? restore_cursor(*entry, cursor)
          : cursor[0] == generation() ? run_based_at(cursor[1])
                                      : nullptr;
    if (run == nullptr || run->heap != this || run->serial != cursor[2]) return LOAM_CHANGED;
    step = cursor[3] + 1;
    region = entry->region;
  }
  for (;; run = List<HeapRun>::next(run), step = 0, ++region) {
    if (run == nullptr) return LOAM_NO_MORE;
    if (run->slots == 0 ? step == 0 : step < kFirstSlotStep + run->slots) break;
  }
  const size_t size = entry->size;
  *entry = loam_walk_entry{};
  entry->size = size;
  entry->region = region;
  if (run->slots != 0) {
    const uint32_t given_back = run->span->unbacked_pages;
    if (step > 0 && step < kFirstSlotStep) {
      // The next stretch of purged pages, from page step - 1 on.
      const uint64_t from = (uint64_t{given_back} >> (step - 1)) << (step - 1);
      if (from == 0) {
        step = kFirstSlotStep;
      } else {
        const unsigned first = lowest_bit(from);
        const unsigned count = lowest_bit(~(from >> first));
        entry->kind = LOAM_ENTRY_UNCOMMITTED;
        entry->address = reinterpret_cast<void*>(run->base + Pages(first).bytes());
        entry->bytes = Pages(count).bytes();
        step = first + count;
      }
    } else if (step == 0) {
      describe_region(run, entry);
    }
    if (step >= kFirstSlotStep && entry->kind == 0) {
      const size_t slot = step - kFirstSlotStep;
      const unsigned state = load_state(run->state_of(slot), run->exact);
      const size_t end = end_of_slot(run, slot);
      const size_t length = run->offset_of(end) - run->offset_of(slot);
      step = kFirstSlotStep + end - 1;
      entry->address = run->slot_address(slot);
      entry->kind = state < kSlotLive ? LOAM_ENTRY_FREE : LOAM_ENTRY_SMALL;
      const bool is_mixed = run->use == RunUse::kMixed;
      entry->bytes = state < kSlotLive ? length
                     : run->exact      ? state - kSlotLive
                     : is_mixed        ? kSizeClasses[class_within(length)].bytes
                                       : length;
      entry->overhead = length - entry->bytes;
    }
  } else {
    entry->address = reinterpret_cast<void*>(run->base);
    entry->kind = run->use == RunUse::kSetAside ? LOAM_ENTRY_FREE
                  : run->use == RunUse::kLarge  ? LOAM_ENTRY_LARGE
                                                : LOAM_ENTRY_HUGE;
    entry->bytes = run->use == RunUse::kSetAside ? run->bytes : run->requested;
    entry->overhead = run->bytes - entry->bytes;
  }
  cursor[0] = generation();
  cursor[1] = run->base;
  cursor[2] = run->serial;
  cursor[3] = step;
  return LOAM_OK;
}

void PrivateHeap::summary(loam_heap_summary* out) {
  Use use(*this);
  stop_caches();
  for (const HeapCache* cache : caches_) {
    for (unsigned c = 1; c < kSizeClassCount; ++c) {
      out->cached += cache->magazines[c].held() * size_t{kSizeClasses[c].bytes};
      out->blocks -= cache->magazines[c].held();  // the bins below count them as taken
    }
  }
  resume_caches();
  out->cached += held_back_bytes();
  out->blocks -= held_back();
  size_t in_mixed = 0;
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const HeapBin* bin = bin_of(c);
    if (bin == nullptr) continue;
    const size_t slots = size_t{bin->spans} * kSizeClasses[c].slots;
    out->spans += bin->spans;
    out->free += bin->free_slots * size_t{kSizeClasses[c].bytes};
    out->allocated += (slots - bin->free_slots) * size_t{kSizeClasses[c].bytes};
    out->blocks += slots - bin->free_slots + bin->in_mixed;
    out->allocated += bin->in_mixed * size_t{kSizeClasses[c].bytes};
    in_mixed += bin->in_mixed * size_t{kSizeClasses[c].bytes};
  }
  out->spans += mixed_runs_;
  out->free += Pages(mixed_pages_).bytes() - in_mixed;
  out->allocated += large_bytes_ - out->cached;
  out->large_blocks = large_taken_ - large_given_;
  out->blocks += out->large_blocks;
  out->free += set_aside_;
  out->reserved = charged_;
  out->committed = charged_ - Pages(unbacked_pages_).bytes();
  out->maximum = maximum_;
  out->peak_committed = peak_;
  out->records = records_;
}

HeapFigures PrivateHeap::figures() {
  HeapFigures f{};
  Use use(*this);
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const HeapBin* bin = bin_of(c);
    if (bin == nullptr) continue;
    f.taken += bin->taken;
    f.given += bin->given;
  }
  f.large_taken = large_taken_;
  f.large_given = large_given_;
  f.refills = ended_refills_;
  f.flushes = ended_flushes_;
  for (const HeapCache* cache : caches_) {
    f.refills += cache->refills;
    f.flushes += cache->flushes;
    ++f.caches;
  }
  f.lock_acquisitions = mutex_.acquisitions();
  f.lock_contentions = mutex_.contentions();
  return f;
}

void PrivateHeap::read(HeapReading* out, VisitClass visit, void* context) {
  *out = HeapReading{};
  uint32_t cached[kSizeClassCount] = {};
  const bool locked = !unsynchronized();
  if (locked) mutex_.lock();
  const bool running =
      locked && lock_owner_ == 0 && !caches_.empty();  // otherwise its caches are stopped already
  if (running) stop_caches();
  for (const HeapCache* cache : caches_) {
    for (unsigned c = 1; c < kSizeClassCount; ++c)
      cached[c] += static_cast<uint32_t>(cache->magazines[c].held());
  }
  if (running) resume_caches();
  count_held_back(cached);
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const HeapBin* bin = bin_of(c);
    HeapReading::Class k{};
    k.cached = cached[c];
    if (bin != nullptr) {
      k.spans = bin->spans;
      k.free_slots = bin->free_slots;
      k.in_mixed = bin->in_mixed;
      k.taken = bin->taken;
      k.given = bin->given;
    }
    visit(context, c, k);
  }
  out->charged = charged_;
  out->records = records_;
  out->set_aside = set_aside_;
  out->large_bytes = large_bytes_;
  out->large_blocks = large_taken_ - large_given_;
  out->unbacked_pages = unbacked_pages_;
  out->mixed_runs = mixed_runs_;
  out->mixed_pages = mixed_pages_;
  out->lock_acquisitions = mutex_.acquisitions();
  out->lock_contentions = mutex_.contentions();
  out->lock_refusals = mutex_.refusals();
  if (locked) mutex_.unlock();
}

Pages PrivateHeap::compact(size_t* largest) {
  Use use(*this);
  reclaim();
  *largest = 0;
  Pages purged;
  for (HeapRun* run : runs_) {
    if (run->use == RunUse::kSetAside && run->bytes > *largest) *largest = run->bytes;
    const bool is_cut = run->use == RunUse::kSpan || run->use == RunUse::kMixed;
    if (!is_cut || run->free_slots == 0) continue;
    const size_t longest = run->use == RunUse::kSpan ? run->slot_bytes : longest_stretch(run);
    if (longest > *largest) *largest = longest;
    purged += purge_inside(run);
  }
  return purged;
}

bool PrivateHeap::is_valid() {
  Use use(*this);
  stop_caches();
  bool valid = bins_are_valid();
  size_t cached = 0, cached_states = 0, bytes = 0, spans = 0, large = 0, runs = 0, mixed = 0,
         mixed_pages = 0, in_mixed = 0;
  for (const HeapCache* cache : caches_) {
    for (unsigned c = 0; c < kSizeClassCount; ++c) {
      const HeapMagazine& m = cache->magazines[c];
      valid = valid && m.base <= m.head && m.head <= m.end;
      cached += m.held();
      for (const CacheSlot* slot = m.base; slot != m.head; ++slot) {
        HeapRun* run = private_run_at(slot->block);
        valid = valid && run != nullptr && run->heap == this && run->size_class == c &&
                load_state(slot->state, run->exact) == kSlotCached;
      }
    }
  }
  for (HeapRun* run : runs_) {
    ++runs;
    bytes += run->bytes;
    valid = valid && run->heap == this && run_based_at(run->base) == run;
    if (run->use == RunUse::kLarge || run->use == RunUse::kHuge) large += run->bytes;
    if (run->use == RunUse::kMixed) {
      ++mixed;
      mixed_pages += run->bytes >> kPageShift;
      valid = valid && mixed_is_valid(run, &in_mixed, &cached_states);
    }
    if (run->use != RunUse::kSpan) continue;
    ++spans;
    unsigned free_slots = 0;
    for (unsigned slot = 0; slot < run->slots; ++slot) {
      const bool bit = run->is_free(slot);
      const unsigned state = load_state(run->state_of(slot), run->exact);
      valid = valid && bit == (state == kSlotFree);
      free_slots += bit;
      cached_states += state == kSlotCached;
    }
    valid = valid && free_slots == run->free_slots;
  }
  size_t bin_spans = 0;
  cached += held_back();
  valid = valid && blocks_are_intact(false) && poison_is_intact();
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    bin_spans += bin_of(c) == nullptr ? 0 : bin_of(c)->spans;
    in_mixed -= bin_of(c) == nullptr ? 0 : bin_of(c)->in_mixed;
  }
  valid = valid && cached <= cached_states && cached_states <= cached + lost_slots_;
  valid = valid && runs_.is_valid(runs + 1) && bytes + coming_bytes_ + records_ == charged_ &&
          spans == bin_spans && mixed == mixed_runs_ && mixed_pages == mixed_pages_ &&
          in_mixed == 0 && large == large_bytes_ && (maximum_ == 0 || charged_ <= maximum_);
  resume_caches();
  return valid;
}

}  // namespace loam
