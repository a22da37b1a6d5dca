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

// Describes what the step of a span leads to, or, where no page of it was given back, its first
// slot. Returns the step of what it described.
size_t PrivateHeap::describe_step(HeapRun* run, size_t step, loam_walk_entry* entry) {
  if (step == 0) {
    describe_region(run, entry);
    return step;
  }
  // The next stretch of purged pages, from page step - 1 on.
  const uint64_t from =
      step < kFirstSlotStep ? (uint64_t{run->span->unbacked_pages} >> (step - 1)) << (step - 1) : 0;
  if (from != 0) {
    const unsigned first = lowest_bit(from), count = lowest_bit(~(from >> first));
    entry->kind = LOAM_ENTRY_UNCOMMITTED;
    entry->address = reinterpret_cast<void*>(run->base + Pages(first).bytes());
    entry->bytes = Pages(count).bytes();
    return first + count;
  }
  const size_t slot = step < kFirstSlotStep ? 0 : step - kFirstSlotStep;
  const unsigned state = load_state(run->state_of(slot), run->exact);
  const size_t end = end_of_slot(run, slot);
  const size_t length = run->offset_of(end) - run->offset_of(slot);
  entry->address = run->slot_address(slot);
  entry->kind = state < kSlotLive ? LOAM_ENTRY_FREE : LOAM_ENTRY_SMALL;
  entry->bytes = state < kSlotLive            ? length
                 : run->exact                 ? state - kSlotLive
                 : run->use == RunUse::kMixed ? kSizeClasses[class_within(length)].bytes
                                              : length;
  entry->overhead = length - entry->bytes;
  return kFirstSlotStep + end - 1;
}

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
    step = describe_step(run, step, entry);
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
  HeapReading r;
  size_t in_mixed = 0;
  auto add = [&](unsigned c, const HeapReading::Class& k) {
    const size_t bytes = kSizeClasses[c].bytes;
    const size_t used = k.spans * kSizeClasses[c].slots - k.free_slots + k.in_mixed;
    out->spans += k.spans;
    out->free += k.free_slots * bytes;
    out->allocated += (used - k.cached) * bytes;
    out->blocks += used - k.cached;
    out->cached += k.cached * bytes;
    in_mixed += k.in_mixed * bytes;
  };
  Use use(*this);
  read_inside(&r, &visit_by<decltype(add)>, &add);
  out->spans += r.mixed_runs;
  out->free += Pages(r.mixed_pages).bytes() - in_mixed + r.set_aside;
  out->allocated += r.large_bytes;
  out->large_blocks = r.large_blocks;
  out->blocks += r.large_blocks;
  out->reserved = r.charged;
  out->committed = r.charged - Pages(r.unbacked_pages).bytes();
  out->maximum = account_.maximum;
  out->peak_committed = account_.peak;
  out->records = r.records;
}

void PrivateHeap::read(HeapReading* out, VisitClass visit, void* context) {
  if (!unsynchronized()) mutex_.lock();
  read_inside(out, visit, context);
  if (!unsynchronized()) mutex_.unlock();
}

void PrivateHeap::read_inside(HeapReading* out, VisitClass visit, void* context) {
  *out = HeapReading{};
  uint32_t cached[kSizeClassCount] = {};
  stop_caches();
  for (const HeapCache* cache : caches_.list) {
    for (unsigned c = 1; c < kSizeClassCount; ++c) cached[c] += cache->magazines[c].held();
  }
  resume_caches();
  count_held_back(cached);
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    HeapReading::Class k{};
    k.cached = cached[c];
    if (const HeapBin* bin = bin_of(c)) {
      k.spans = bin->spans;
      k.free_slots = bin->free_slots;
      k.in_mixed = bin->in_mixed;
      k.taken = bin->taken;
      k.given = bin->given;
    }
    visit(context, c, k);
  }
  out->charged = account_.charged;
  out->records = account_.records;
  out->set_aside = account_.set_aside;
  out->large_bytes = account_.large_bytes;
  out->large_blocks = account_.large_taken - account_.large_given;
  out->unbacked_pages = account_.unbacked_pages;
  out->mixed_runs = mixed_.runs;
  out->mixed_pages = mixed_.pages;
  out->lock_acquisitions = mutex_.acquisitions();
  out->lock_contentions = mutex_.contentions();
  out->lock_refusals = mutex_.refusals();
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
  for (const HeapCache* cache : caches_.list) {
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
  valid = valid && cached <= cached_states && cached_states <= cached + caches_.lost_slots;
  valid = valid && runs_.is_valid(runs + 1) &&
          bytes + account_.coming_bytes + account_.records == account_.charged &&
          spans == bin_spans && mixed == mixed_.runs && mixed_pages == mixed_.pages &&
          in_mixed == 0 && large == account_.large_bytes &&
          (account_.maximum == 0 || account_.charged <= account_.maximum);
  resume_caches();
  return valid;
}

}  // namespace loam
