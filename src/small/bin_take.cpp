// A bin's refills: slots of its fullest spans, then slots of spans from the page heap.
//
// Lock: the bin's.
#include "os/random.h"
#include "small/bin.h"
#include "small/bin_lists.h"
#include "small/partial_span.h"
#include "small/pointer_run.h"
#include "small/slot_bits.h"

namespace loam {

using bin_lists::kNoList;

namespace {

constinit bool random_slots = false;

// One of the `free` set bits, each with the same probability.
unsigned pick_at_random(const uint64_t* words, unsigned free) {
  unsigned nth = random_source.below(free);
  for (unsigned word = 0;; ++word) {
    uint64_t bits = words[word];
    const unsigned here = count_bits(bits);
    if (nth >= here) {
      nth -= here;
      continue;
    }
    for (; nth != 0; --nth) bits &= bits - 1;
    return word * 64 + lowest_bit(bits);
  }
}

// Moves `take` of the span's free slots, chosen at random, below *next.
LOAM_COLD void take_at_random(Span* span, unsigned take, void*** next) {
  const uintptr_t base = span_base(span);
  const size_t bytes = class_info(index_of(span->size_class)).bytes;
  unsigned free = take + span->free_slots;  // free_slots is already the number that will be left
  for (; take != 0; --take, --free) {
    const unsigned slot = pick_at_random(span->free_bits, free);
    store_word(&span->free_bits[slot / 64],
               span->free_bits[slot / 64] & ~(uint64_t{1} << (slot % 64)));
    *--*next = reinterpret_cast<void*>(base + slot * bytes);
  }
}

LOAM_INLINE PageHeap::Source source_of(Bin::From from) {
  return from == Bin::From::kAnywhere ? PageHeap::Source::kAny : PageHeap::Source::kBacked;
}

}  // namespace

void choose_slots_at_random() { random_slots = true; }
bool slots_are_chosen_at_random() { return random_slots; }

// Makes a span of about the longest backed run that is shorter than the class's spans and holds a
// slot. All its slots are free.
Span* Bin::allocate_short(PageHeap& pages, PageHeap::SpanShape shape) {
  const SizeClassInfo& info = class_info(index_of(shape.size_class));
  static_assert(Pages(kMaxSpanPages).bytes() / (MixedHeap::kLargestBlock + kGranuleBytes) <=
                kMaxPartialSlots);
  for (unsigned slots = info.slots - 1u; slots != 0; slots /= 2) {
    const unsigned count =
        static_cast<unsigned>((slots * info.bytes + kPageBytes - 1) >> kPageShift);
    if (count >= info.pages) continue;
    shape.pages = Pages(count);
    Span* const span = pages.allocate_span(shape, PageHeap::Source::kBacked);
    if (span == nullptr) continue;
    const unsigned fitting = static_cast<unsigned>(Pages(count).bytes() / info.bytes);
    const unsigned own = fitting < info.slots ? fitting : info.slots;
    span->page_count = info.pages;
    span->partial.own_slots = own;
    span->partial.absent_pages = static_cast<uint32_t>(bit_range(count, info.pages - count));
    mark_all_free(span, own);
    span->free_slots = static_cast<uint16_t>(own);
    span->set_run_kind(SpanKind::kPartial);
    counts_.absent_slots += info.slots - own;
    counts_.absent_pages += info.pages - count;
    return span;
  }
  return nullptr;
}

LOAM_INLINE PageHeap::SpanShape Bin::shape_of_spans(unsigned size_class) const {
  return {Pages(class_info(size_class).pages), SizeClass(size_class), SizeClass(size_class),
          SpanOwner(kDefaultHeap, number_)};
}

// Takes all slots of spans that the refill empties at once. False if there is no such span.
LOAM_INLINE bool Bin::take_whole_spans(PageHeap& pages, Refill& refill, From from) {
  const SizeClassInfo& info = class_info(refill.size_class);
  const PageHeap::Run run = pages.allocate_spans(
      refill.missing() / info.slots, shape_of_spans(refill.size_class), source_of(from));
  if (run.span == nullptr) return false;
  refill.fresh += Pages(run.fresh);
  void** next = refill.next;
  for (Span *span = run.span, *after; span != nullptr; span = after) {
    after = List<Span>::next(span);
    span->next = nullptr;
    for (unsigned slot = 0; slot < info.slots; slot += 64)
      store_word(&span->free_bits[slot / 64], 0);
    span->free_slots = 0;
    span->set_list(kNoList);
    next = fill_run_downwards(next, span_base(span), info.bytes, info.slots);
    counts_.spans += 1;
  }
  refill.next = next;
  return true;
}

// Gets a span from the page heap; all its slots are free. Null if there is none.
Span* Bin::add_span(PageHeap& pages, Refill& refill, From from) {
  const SizeClassInfo& info = class_info(refill.size_class);
  const PageHeap::SpanShape shape = shape_of_spans(refill.size_class);
  const PageHeap::Run run =
      pages.allocate_spans(1, shape, source_of(from), PageHeap::Use::kBySlots);
  Span* span = run.span;
  refill.fresh += Pages(run.fresh);
  if (LOAM_LIKELY(span != nullptr)) {
    mark_all_free(span, info.slots);
    span->free_slots = info.slots;
    counts_.unbacked_pages += count_bits(span->unbacked_pages);
  } else {
    if (LOAM_LIKELY(from != From::kShortRuns)) return nullptr;
    span = allocate_short(pages, shape);
    if (span == nullptr) return nullptr;
  }
  span->set_list(kNoList);
  counts_.spans += 1;
  counts_.free_slots += span->free_slots;
  return span;
}

// Takes as many of the span's free slots as the refill is missing. pre: the span has some
LOAM_INLINE void Bin::take_slots_of(Span* span, Refill& refill) {
  const SizeClassInfo& info = class_info(refill.size_class);
  const size_t bytes = info.bytes;
  const unsigned missing = refill.missing();
  unsigned take = missing < span->free_slots ? missing : span->free_slots;
  void** next = refill.next;
  void** const before = next;
  span->free_slots = static_cast<uint16_t>(span->free_slots - take);
  counts_.free_slots -= take;
  if (LOAM_UNLIKELY(random_slots)) {
    take_at_random(span, take, &next);
    take = 0;
  }
  uintptr_t base = span_base(span);
  for (uint64_t* word = span->free_bits; take != 0; ++word, base += 64 * bytes) {
    uint64_t bits = *word;
    if (bits == 0) continue;
    const unsigned first = lowest_bit(bits);
    const uint64_t low = bits >> first;
    if (LOAM_LIKELY((low & (low + 1)) == 0)) {
      // One run: the slots of an empty span, or the rest of them.
      unsigned run = low == ~uint64_t{0} ? 64 : lowest_bit(low + 1);
      if (run > take) run = take;
      next = fill_run_downwards(next, base + first * bytes, bytes, run);
      take -= run;
      store_word(word, bits & ~bit_range(first, run));
      continue;
    }
    for (; bits != 0 && take != 0; bits &= bits - 1, --take) {
      *--next = reinterpret_cast<void*>(base + lowest_bit(bits) * bytes);
    }
    store_word(word, bits);
  }
  if (LOAM_UNLIKELY(span->unbacked_pages != 0)) note_backed(span, info, next, before);
  refill.next = next;
}

unsigned Bin::take_locked(PageHeap& pages, Refill& refill, From from) {
  const unsigned slots = class_info(refill.size_class).slots;
  void** const before = refill.next;
  while (refill.next != refill.out) {
    Span* span;
    if (LOAM_LIKELY(occupied_ != 0)) {
      span = lists_[highest_bit(occupied_)].front();
    } else if (Span* const empty = empty_.front(); empty != nullptr) {
      span = empty;
    } else {
      idle_.note(0);
      if (refill.missing() < slots) {
        if (refill.got() >= refill.enough) break;
      } else if (LOAM_LIKELY(!random_slots && from != From::kShortRuns)) {
        if (!take_whole_spans(pages, refill, from)) break;
        continue;
      }
      span = add_span(pages, refill, from);
      if (span == nullptr) break;
    }
    take_slots_of(span, refill);
    place(span);
  }
  const unsigned got = static_cast<unsigned>(before - refill.next);
  idle_.note(counts_.free_slots);
  totals_.taken += got;
  return got;
}

}  // namespace loam
