// A bin's free pages inside live spans. They are purged on request, or after their slots were
// unwanted for a while. They are also lent to requests that would otherwise touch fresh pages.
#include "small/bin.h"
#include "small/partial_span.h"

namespace loam {

namespace {

// The pages of the span that no used slot touches, as a mask.
uint32_t idle_pages(const Span* span, const SizeClassInfo& info) {
  uint32_t idle = 0;
  const uint64_t* free_bits = span->free_bits;
  uint64_t unused_bits[kMaxPartialSlots / 64];  // free or absent
  if (LOAM_UNLIKELY(is_partial(span))) {
    for (unsigned i = 0; i < kMaxPartialSlots / 64; ++i) unused_bits[i] = free_bits[i];
    for (unsigned slot = 0; slot < info.slots; ++slot) {
      unused_bits[slot / 64] |= uint64_t{is_absent(span, slot, info)} << (slot % 64);
    }
    free_bits = unused_bits;
  }
  for (unsigned page = 0; page < info.pages; ++page) {
    const unsigned first = (page << kPageShift) / info.bytes;
    const unsigned behind = (((page + 1) << kPageShift) - 1) / info.bytes + 1;
    const unsigned end = behind < info.slots ? behind : info.slots;
    const bool is_idle = first >= end || all_bits(free_bits, first, end - first);
    idle |= uint32_t{is_idle} << page;
  }
  return idle & ~absent_pages(span);
}

}  // namespace

// The pages of slots that were just handed out will be backed as soon as the program writes to
// them.
void Bin::note_backed(Span* span, const SizeClassInfo& info, void* const* begin, void* const* end) {
  const auto slot_of = [&](const void* pointer) {
    return static_cast<unsigned>((reinterpret_cast<uintptr_t>(pointer) - span_base(span)) /
                                 info.bytes);
  };
  uint32_t pages = 0;
  const unsigned first = slot_of(end[-1]), last = slot_of(*begin);  // end[-1] is the lowest
  if (LOAM_LIKELY(!slots_are_chosen_at_random() &&
                  last - first == static_cast<unsigned>(end - begin) - 1)) {
    pages = pages_of_slots(first, last, info);
  } else {
    for (; begin != end; ++begin) pages |= pages_of_slot(slot_of(*begin), info);
  }
  pages &= span->unbacked_pages;
  counts_.unbacked_pages -= count_bits(pages);
  span->unbacked_pages &= ~pages;
}

// Empty spans leave the bin and count as 0 pages, because the page heap decides about their pages.
Pages Bin::purge_span(Span* span, unsigned size_class, Span** gone) {
  const SizeClassInfo& info = class_info(size_class);
  if (span->free_slots == info.slots) {
    unlink(span);
    release_span(span, info.slots, gone);
    return Pages(0);
  }
  const Pages purged = purge_idle_pages(span, idle_pages(span, info));
  counts_.unbacked_pages += purged.count;
  return purged;
}

// Gives the idle pages of the span to the page heap. Returns how many of them are backed; if none
// is, it does nothing.
Pages Bin::lend_pages(PageHeap& pages, Span* span, const SizeClassInfo& info) {
  const uint32_t idle = idle_pages(span, info);
  const Pages backed(count_bits(idle & ~span->unbacked_pages));
  if (backed == Pages(0)) return backed;
  if (!is_partial(span)) {
    span->partial.own_slots = info.slots;
    span->partial.absent_pages = 0;
    span->set_run_kind(SpanKind::kPartial);
  }
  unsigned slots = 0;
  for (unsigned slot = 0; slot < info.slots; ++slot) {
    uint64_t* const word = &span->free_bits[slot / 64];
    const uint64_t bit = uint64_t{1} << (slot % 64);
    if ((*word & bit) == 0 || (pages_of_slot(slot, info) & idle) == 0) continue;
    __atomic_store_n(word, *word & ~bit, __ATOMIC_RELAXED);  // as store_word()
    ++slots;
  }
  span->free_slots = static_cast<uint16_t>(span->free_slots - slots);
  span->partial.own_slots -= slots;
  __atomic_store_n(&span->partial.absent_pages, span->partial.absent_pages | idle,
                   __ATOMIC_RELAXED);
  counts_.free_slots -= slots;
  counts_.absent_slots += slots;
  counts_.absent_pages += count_bits(idle);
  counts_.unbacked_pages -= count_bits(span->unbacked_pages & idle);
  pages.free_pages_of(span, idle);
  span->unbacked_pages &= ~idle;
  return backed;
}

Pages Bin::lend_locked(PageHeap& pages, MixedHeap& mixed, unsigned size_class, Pages wanted,
                       unsigned home) {
  const SizeClassInfo& info = class_info(size_class);
  const bool as_mixed = MixedHeap::serves(size_class);
  Pages lent;
  unsigned looked_at = 0;
  for (unsigned list = 0; list < kSparseLists; ++list) {
    // Emptiest spans first. A span without idle pages goes to the end of its list, so that the next
    // search visits others.
    for (Span* last = lists_[list].back();
         last != nullptr && lent < wanted && looked_at < kSpansVisited; ++looked_at) {
      Span* const span = lists_[list].front();
      const bool was_last = span == last;
      Pages here;
      if (as_mixed && (idle_pages(span, info) & ~span->unbacked_pages) != 0) {
        static_cast<void>(make_mixed(mixed, span, info, home, &here));
      } else {
        if (!as_mixed) here = lend_pages(pages, span, info);
        lists_[list].remove(span);
        lists_[list].push_back(span);
        if (here != Pages(0)) place(span);
      }
      lent += here;
      if (was_last) break;
    }
  }
  idle_.note(counts_.free_slots);
  return lent;
}

Pages Bin::compact_locked(PageHeap& pages, unsigned size_class) {
  Pages purged;
  static_cast<void>(release_empty_locked(pages, size_class, ~0u));
  Span* gone = nullptr;
  for (auto& list : lists_) {
    for (Span *span = list.front(), *next = nullptr; span != nullptr; span = next) {
      next = List<Span>::next(span);
      purged += purge_span(span, size_class, &gone);
    }
  }
  if (gone != nullptr) pages.free_spans(gone);
  return purged;
}

void Bin::end_period_locked(size_t slot_bytes) {
  idle_.end_period(counts_.free_slots);
  if (search_.lists == 0 && unwanted_pages(slot_bytes) != Pages(0)) search_lists(kLists);
}

size_t Bin::fallen_bytes_hint(unsigned size_class) const {
  const SizeClassInfo& info = class_info(size_class);
  return idle_.fallen(backed_bytes(info.bytes), used_slots_hint(size_class) * info.bytes);
}

// Starts a search of the last `count` lists, without lists that are empty now.
void Bin::search_lists(unsigned count) {
  while (count != 0 && occupancy_[kLists - count] == 0) --count;
  search_.lists = static_cast<uint8_t>(count);
  if (count != 0) search_.spans = occupancy_[kLists - count];
}

Pages Bin::unwanted_pages(size_t slot_bytes) const {
  const Pages unwanted(idle_.unwanted_slots() * slot_bytes >> kPageShift);
  const Pages gone(counts_.unbacked_pages);
  return unwanted > gone ? unwanted - gone : Pages(0);
}

unsigned Bin::purge_unwanted_locked(PageHeap& pages, unsigned size_class, unsigned looks) {
  const SizeClassInfo& info = class_info(size_class);
  if (search_.lists != 0 && !empty_.empty()) {
    const unsigned unwanted = static_cast<unsigned>(unwanted_pages(info.bytes).count / info.pages);
    looks -= release_empty_locked(pages, size_class, unwanted < looks ? unwanted : looks);
    if (looks < kLooksAPurge) return looks;
  }
  Span* gone = nullptr;
  while (search_.lists != 0) {
    if (unwanted_pages(info.bytes) == Pages(0)) {
      search_.lists = 0;
      break;
    }
    List<Span>& list = lists_[kLists - search_.lists];
    Span* const span = list.front();
    if (search_.spans == 0 || span == nullptr) {
      search_lists(search_.lists - 1u);
      if (search_.lists == 0) idle_.end_watch(backed_bytes(info.bytes));
      continue;
    }
    if (looks < kLooksAPurge) break;
    // The span goes behind the others. So the next look visits other spans, and a refill takes
    // slots of other spans.
    list.remove(span);
    list.push_back(span);
    --search_.spans;
    looks -= purge_span(span, size_class, &gone) == Pages(0) ? 1 : kLooksAPurge;
  }
  if (gone != nullptr) pages.free_spans(gone);
  return looks;
}

}  // namespace loam
