// The spans of a private heap: slots are taken and given, empty spans go back. All under the heap's
// lock.
#include <cstring>

#include "map/metadata.h"
#include "pages/page_heap.h"
#include "private/private_heap.h"
#include "small/mixed_heap.h"
#include "small/pointer_run.h"

namespace loam {

namespace {

uint8_t heap_list_of(const HeapRun* run) {
  if (run->free_slots == 0) return kNoHeapList;
  return static_cast<uint8_t>((run->slots - run->free_slots) * HeapBin::kLists / run->slots);
}

// The pages of the span on which the slots or pieces [first, end) lie. pre: first < end
uint32_t pages_of(const HeapRun* run, size_t first, size_t end) {
  const auto from = static_cast<unsigned>(run->offset_of(first) >> kPageShift);
  const auto last = static_cast<unsigned>((run->offset_of(end) - 1) >> kPageShift);
  return static_cast<uint32_t>(bit_range(from, last - from + 1));
}

// Writes `count` neighbouring slots below `end`, the last one lowest. Returns the place of the last
// one.
LOAM_INLINE CacheSlot* fill_slots_downwards(CacheSlot* end, uintptr_t first, size_t step,
                                            uint8_t* state, unsigned state_step, unsigned count) {
  for (; count >= 4; count -= 4, first += 4 * step, state += 4 * state_step) {
    end -= 4;
    end[3] = CacheSlot{reinterpret_cast<void*>(first), state};
    end[2] = CacheSlot{reinterpret_cast<void*>(first + step), state + state_step};
    end[1] = CacheSlot{reinterpret_cast<void*>(first + 2 * step), state + 2 * state_step};
    end[0] = CacheSlot{reinterpret_cast<void*>(first + 3 * step), state + 3 * state_step};
  }
  for (; count != 0; --count, first += step, state += state_step) {
    *--end = CacheSlot{reinterpret_cast<void*>(first), state};
  }
  return end;
}

// The distance from one block of the batch to the next; 0 at its end.
LOAM_INLINE ptrdiff_t step_from(const CacheSlot* slots, const CacheSlot* end) {
  if (LOAM_UNLIKELY(slots + 1 == end)) return 0;
  return reinterpret_cast<intptr_t>(slots[1].block) - reinterpret_cast<intptr_t>(slots[0].block);
}

// Gives blocks and states of slots that follow each other in the batch by `step`, as they do in the
// span, up to the end of one word of free bits. `slot` is the first one's number. Returns their
// count; 0 where something is wrong with them, which the path for single slots then reports. In a
// function of its own, because few callers need its registers.
LOAM_NOINLINE unsigned give_neighbours(HeapRun* run, const CacheSlot* slots, const CacheSlot* end,
                                       ptrdiff_t step, unsigned slot) {
  const bool exact = run->exact;
  if (LOAM_UNLIKELY(slot >= run->slots) || LOAM_UNLIKELY(run->state_of(slot) != slots->state))
    return 0;
  const bool upwards = step > 0;
  const unsigned bit = slot % 64, left = run->slots - slot;
  unsigned most = !upwards ? bit + 1 : left < 64 - bit ? left : 64 - bit;
  if (most > end - slots) most = static_cast<unsigned>(end - slots);
  const unsigned blocks = run_length_of(
      [slots](unsigned i) { return reinterpret_cast<uintptr_t>(slots[i].block); }, most, step);
  const unsigned count =
      run_length_of([slots](unsigned i) { return reinterpret_cast<uintptr_t>(slots[i].state); },
                    blocks, upwards ? 1 + exact : -1 - exact);
  const unsigned lowest = upwards ? slot : slot + 1 - count;
  const uint64_t bits = bit_range(lowest % 64, count);
  uint64_t& word = run->free_bits()[lowest / 64];
  if (LOAM_UNLIKELY((word & bits) != 0)) return 0;
  word |= bits;
  store_states(run->state_of(lowest), exact, count, kSlotFree);
  return count;
}

}  // namespace

HeapBin* PrivateHeap::bin_of(unsigned size_class) const {
  HeapBins* group = groups_[size_class / HeapBins::kBins];
  return group == nullptr ? nullptr : &group->bins[size_class % HeapBins::kBins];
}

HeapBin* PrivateHeap::make_bin(unsigned size_class) {
  HeapBins*& group = groups_[size_class / HeapBins::kBins];
  if (group == nullptr) group = static_cast<HeapBins*>(allocate_record(sizeof(HeapBins)));
  return group == nullptr ? nullptr : &group->bins[size_class % HeapBins::kBins];
}

// Takes pages for a run of slots or pieces, all of which are free. Null with *why set.
HeapRun* PrivateHeap::add_cut_run(RunUse use, unsigned size_class, Pages pages, size_t slot_bytes,
                                  unsigned slots, loam_status* why) {
  const size_t record_bytes = HeapRun::record_bytes(slots, exact(), use == RunUse::kMixed);
  *why = LOAM_LIMIT_REACHED;
  if (!has_room(pages.bytes(), record_bytes, true)) return nullptr;
  use_set_aside(pages);
  HeapRun* run = new_run(pages.bytes(), record_bytes, why);
  if (run == nullptr) return nullptr;
  // A span has some class; a mixed run has none.
  const auto its_class = SizeClass(size_class == 0 ? 1 : size_class);
  Span* span = page_heap.allocate_span({pages, its_class, kNoClass, kPrivateHeap});
  if (span == nullptr) {
    *why = LOAM_OUT_OF_MEMORY;
    drop_run(run, record_bytes);
    return nullptr;
  }
  run->base = span_base(span);
  run->slot_bytes = static_cast<uint32_t>(slot_bytes);
  run->slots = run->free_slots = static_cast<uint16_t>(slots);
  run->size_class = static_cast<uint8_t>(size_class);
  run->use = use;
  run->exact = exact();
  run->list = kNoHeapList;
  run->span = span;
  over_words(0, slots, [run](unsigned w, uint64_t mask) { run->free_bits()[w] = mask; });
  span->unbacked_pages = 0;
  return run;
}

HeapRun* PrivateHeap::add_span(HeapBin* bin, unsigned size_class, loam_status* why) {
  const SizeClassInfo& info = kSizeClasses[size_class];
  HeapRun* run =
      add_cut_run(RunUse::kSpan, size_class, Pages(info.pages), info.bytes, info.slots, why);
  if (run == nullptr) return nullptr;
  run->reciprocal = info.reciprocal;
  Span* const span = run->span;
  span->owned.base = run->base;
  span->owned.reciprocal = info.reciprocal;
  span->owned.magazine = HeapCache::offset_of(size_class);
  set_run(span, run);
  span->own(this);
  add_run(run);
  ++bin->spans;
  bin->free_slots += info.slots;
  move_to_list(bin->lists, run, heap_list_of(run));
  return run;
}

// The pages that compact purged, and on which these slots lie, will be touched.
void PrivateHeap::note_backed(HeapRun* run, size_t slot, size_t count) {
  const uint32_t back = run->span->unbacked_pages & pages_of(run, slot, slot + count);
  account_.unbacked_pages -= count_bits(back);
  run->span->unbacked_pages &= ~back;
}

// Slots are in `out` last first, so that a stack hands out ascending addresses. They count as
// cached afterwards.
unsigned PrivateHeap::take(unsigned size_class, CacheSlot* out, unsigned wanted, loam_status* why) {
  HeapBin* bin = make_bin(size_class);
  if (bin == nullptr) {
    *why = why_no_record(sizeof(HeapBins));
    return 0;
  }
  unsigned got = 0;
  CacheSlot* next = out + wanted;
  while (got < wanted) {
    HeapRun* run = nullptr;
    for (unsigned list = HeapBin::kLists; list-- > 0 && run == nullptr;) run = bin->lists[list];
    if (run == nullptr) {
      // Only the first slot is needed. More slots are no reason to come closer to a maximum.
      if ((got != 0 && account_.maximum != 0) || (run = add_span(bin, size_class, why)) == nullptr)
        break;
    }
    unsigned some = wanted - got < run->free_slots ? wanted - got : run->free_slots;
    run->free_slots = static_cast<uint16_t>(run->free_slots - some);
    bin->free_slots -= some;
    got += some;
    const bool exact = run->exact;
    const size_t slot_bytes = run->slot_bytes;
    uint64_t* const free_bits = run->free_bits();
    for (unsigned word = 0; some != 0; ++word) {
      uint64_t bits = free_bits[word];
      while (bits != 0 && some != 0) {
        // Neighbours at once: usually all slots of a new span, or of one to which a flush returned.
        const unsigned shift = lowest_bit(bits);
        const uint64_t gaps = ~(bits >> shift);
        const unsigned stretch = gaps == 0 ? 64 : lowest_bit(gaps);
        const unsigned count = stretch < some ? stretch : some;
        const unsigned first = word * 64 + shift;
        if (LOAM_UNLIKELY(run->span->unbacked_pages != 0)) note_backed(run, first, count);
        uint8_t* const state = run->state_of(first);
        next = fill_slots_downwards(next, run->base + first * slot_bytes, slot_bytes, state,
                                    1u + exact, count);
        store_states(state, exact, count, kSlotCached);
        bits &= ~bit_range(shift, count);
        some -= count;
      }
      free_bits[word] = bits;
    }
    move_to_list(bin->lists, run, heap_list_of(run));
  }
  if (got != wanted) memmove(out, next, got * sizeof(CacheSlot));
  bin->taken += got;
  const size_t bytes = got * kSizeClasses[size_class].bytes;
  fall_.fallen -= bytes < fall_.fallen ? bytes : fall_.fallen;
  return got;
}

// Consecutive slots of one span in `slots` are counted together, and move the span once. Where they
// are also neighbours in the span, their bits in a word are set at once.
void PrivateHeap::give(const CacheSlot* slots, unsigned count) {
  for (const CacheSlot* const end = slots + count; slots != end;) {
    HeapRun* run = private_run_at(slots->block);
    if (LOAM_UNLIKELY(run == nullptr || run->heap != this || run->use != RunUse::kSpan)) {
      report_misuse("double free in a private heap", slots->block, held_lock());
      ++slots;
      continue;
    }
    // In variables, because for the compiler a stored state may be any byte of the record.
    const uintptr_t base = run->base;
    const size_t bytes = run->bytes, reciprocal = run->reciprocal;
    const bool exact = run->exact;
    uint8_t* const states = run->states();
    uint64_t* const free_bits = run->free_bits();
    const ptrdiff_t slot_bytes = run->slot_bytes;
    unsigned given = 0;
    do {
      const size_t offset = reinterpret_cast<uintptr_t>(slots->block) - base;
      if (offset >= bytes) break;
      const size_t slot = (offset * reciprocal) >> 32;
      const ptrdiff_t step = step_from(slots, end);
      if (step == slot_bytes || step == -slot_bytes) {
        if (const unsigned several = give_neighbours(run, slots, end, step, unsigned(slot));
            LOAM_LIKELY(several != 0)) {
          given += several;
          slots += several - 1;
          continue;
        }
      }
      const uint64_t bit = uint64_t{1} << (slot % 64);
      uint8_t* const state = states + (slot << unsigned(exact));
      if (LOAM_UNLIKELY((free_bits[slot / 64] & bit) != 0 || state != slots->state)) {
        report_misuse("double free in a private heap", slots->block, held_lock());
        continue;
      }
      free_bits[slot / 64] |= bit;
      store_state(state, exact, kSlotFree);
      ++given;
    } while (++slots != end);
    HeapBin* bin = bin_of(run->size_class);
    run->free_slots = static_cast<uint16_t>(run->free_slots + given);
    bin->free_slots += given;
    bin->given += given;
    fall_.fallen += given * static_cast<size_t>(slot_bytes);
    move_to_list(bin->lists, run, heap_list_of(run));
    if (LOAM_UNLIKELY(run->free_slots == run->slots)) release_span(bin, run);
  }
}

void PrivateHeap::release_span(HeapBin* bin, HeapRun* run) {
  LOAM_ASSERT(run->free_slots == run->slots);
  move_to_list(bin->lists, run, kNoHeapList);
  --bin->spans;
  bin->free_slots -= run->slots;
  release_run(run);
}

Pages PrivateHeap::purge_inside(HeapRun* run) {
  uint32_t used = run->span->unbacked_pages;
  for (unsigned slot = 0; slot < run->slots; ++slot) {
    if (!run->is_free(slot)) used |= pages_of(run, slot, slot + 1);
  }
  const uint32_t all = static_cast<uint32_t>(bit_range(0, run->span->page_count));
  const Pages purged = purge_idle_pages(run->span, all & ~used);
  account_.unbacked_pages += purged.count;
  return purged;
}

bool PrivateHeap::bins_are_valid() const {
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const HeapBin* bin = bin_of(c);
    if (bin == nullptr) continue;
    size_t free_slots = 0;
    for (unsigned list = 0; list < HeapBin::kLists; ++list) {
      const HeapRun* before = nullptr;
      using Link = ListLink<HeapRun, PartialRuns>;
      for (const HeapRun* run = bin->lists[list]; run != nullptr; run = run->Link::next) {
        if (run->Link::previous != before || run->list != list || run->size_class != c)
          return false;
        if (heap_list_of(run) != list) return false;
        free_slots += run->free_slots;
        before = run;
      }
    }
    if (free_slots != bin->free_slots) return false;
    const size_t outside = size_t{bin->spans} * kSizeClasses[c].slots - free_slots + bin->in_mixed;
    if (bin->taken - bin->given != outside) return false;
  }
  return true;
}

}  // namespace loam
