// The page heap's spans. They are made of runs of pages, and empty ones are kept whole where the
// next request may want them unchanged.
#include "os/os.h"
#include "pages/page_heap.h"

namespace loam {

namespace {

// The pages of the shortest span that stands when it is empty. Chosen: shorter spans cost little a
// block to take and free. When they stood too, `queue` needed 2.5 % more memory, because single
// pages were taken where they were and not where they fit best (decision 25).
constexpr unsigned kShortestWhole = 8;

// Makes the record that of a span without free slots, whatever it was before.
void make_small(Span* span, uint32_t first_page, const PageHeap::SpanShape& shape) {
  *span = Span{};
  span->first_page = first_page;
  span->page_count = static_cast<uint8_t>(shape.pages.count);
  span->heap = shape.owner.heap;
  span->set_label(Span::label_of(shape.size_class, shape.owner.bin, SpanKind::kSmall, 0));
}

// The list in reverse order.
Span* reversed(Span* first) {
  Span* before = nullptr;
  for (Span* after; first != nullptr; first = after) {
    after = List<Span>::next(first);
    first->next = before;
    before = first;
  }
  return before;
}

}  // namespace

void PageHeap::park_span(Span* span, uint64_t since_ms) {
  const Pages pages(span->page_count);
  unpublish_span(region_of(span), span, pages);
  span->large.pages = pages.count;
  span->heap = 0;
  parked(ParkedRuns::kSpansRuns).push(span, ParkedRuns::kSpansRuns, since_ms);
}

// Whether the span may wait unchanged for a request of its length. Then the map, which names it by
// its class, need not change.
LOAM_INLINE bool PageHeap::may_stand(const Span* span) const {
  if (span->page_count < kShortestWhole) return false;
  if (span->kind != SpanKind::kSmall || span->size_class == kNoClass) return false;
  return class_in(region_of(span), PageId(span->first_page)) == index_of(span->size_class);
}

LOAM_INLINE void PageHeap::let_stand(Span* span) {
  span->kind = SpanKind::kStanding;
  span->heap = 0;
  standing_spans_.push(span, clock_.now_ms());
}

// Takes standing spans of the requested length, if there are any. Their records are then as
// allocate_spans() leaves them.
LOAM_INLINE Span* PageHeap::take_standing_spans(unsigned most, const SpanShape& shape) {
  const auto [pages, size_class, class_byte, owner] = shape;
  Span* const first = standing_spans_.newest(pages);
  if (first == nullptr) return nullptr;
  Span* last;
  Pages taken{};
  Span* rest = first;
  do {
    last = rest;
    rest = List<Span>::next(rest);
    if (LOAM_UNLIKELY(last->size_class != size_class || class_byte != size_class)) {
      make_small(last, last->first_page, shape);
      last->next = rest;
      publish_span(region_of(last), last, pages, class_byte);
    } else {
      last->standing.since_ms = 0;
      last->heap = owner.heap;
      last->set_label(Span::label_of(size_class, owner.bin, SpanKind::kSmall, 0));
    }
    taken += pages;
  } while (--most != 0 && rest != nullptr);
  standing_spans_.pop_newest(last);
  standing_spans_.remove_waiting(taken);
  used_ += taken;
  if (used_ > policy_.peak()) note_peak();
  return first;
}

// Takes the next `count` backed pages of the slab that is being filled. pre: there is one, and no
// parked run has exactly that length
LOAM_INLINE Span* PageHeap::take_filling(unsigned count) {
  Span* run;
  if (LOAM_UNLIKELY(!filling_.find(count, &run))) return nullptr;
  Span* const span = take_record(filling_.region());
  if (LOAM_UNLIKELY(span == nullptr)) return nullptr;
  if (LOAM_LIKELY(run != nullptr)) {
    parked(ParkedRuns::kSpansRuns).cut(run, count, span);
    standing_spans_.remove_waiting(Pages(count));
  } else {
    span->first_page = filling_.next().index;
    static_cast<void>(mark_used(&filling_.region()->slabs[span->first_page / kPagesPerSlab],
                                span->first_page % kPagesPerSlab, count));
  }
  filling_.pass(count);
  return span;
}

// Takes a parked run for a span: the first pages of the shortest run that is long enough. A short
// span takes a run of exactly its length; otherwise a run in the slab that is being filled.
// *none says whether there is none, neither parked nor closer in length in the bitmaps.
Span* PageHeap::unpark_span(Pages pages, bool* none) {
  const unsigned count = static_cast<unsigned>(pages.count);
  // The first test also saves a small program from touching the pages of empty lists.
  const bool some = standing_spans_.waiting() != Pages(0);
  const bool fills = count < kShortestWhole && !(some && parked(ParkedRuns::kSpansRuns).has(count));
  Span* span = fills && !filling_.empty() ? take_filling(count) : nullptr;
  if (span == nullptr) {
    const Cut cut = some ? cut_parked(ParkedRuns::kSpansRuns, count, 0, &span) : Cut::kNothing;
    *none = cut == Cut::kNothing;
    if (cut != Cut::kDone) return nullptr;
    standing_spans_.remove_waiting(pages);
    if (fills) filling_.begin(region_of(span), PageId(span->first_page));
  }
  used_ += pages;
  if (used_ > policy_.peak()) note_peak();
  return span;
}

PageHeap::Run PageHeap::allocate_spans(unsigned most, SpanShape shape, Source source, Use use) {
  Lock lock(mutex_);
  Span* span = take_standing_spans(most, shape);
  if (LOAM_LIKELY(span != nullptr)) {
    count_operation();
    return {span};
  }
  const Pages pages = shape.pages;
  uint32_t fresh = 0;
  uint32_t unbacked = 0;  // of the first span's pages
  // A standing span may serve a part of itself to this request, or more pages after joining.
  bool none = false;
  do {
    span = unpark_span(pages, &none);
  } while (span == nullptr && none && join_standing(ParkedRuns::kSpansRuns, kJoinedAtOnce));
  if (span == nullptr) {
    const Place place = take(pages, Pages(1), Taker{RunKind::kSpan, 0}, source);
    if (place.region == nullptr) return {};
    span = take_record(place.region);
    if (span == nullptr) {
      release_pages(place.region, place.page, pages, 0, clock_.now_ms());
      return {};
    }
    fresh = place.fresh;
    span->first_page = place.page.index;
    // If the system's pages are larger, the first slot backs a whole system page, wherever the slot
    // is.
    if (use == Use::kBySlots && LOAM_LIKELY(os::granularity() == kPageBytes))
      unbacked = place.unbacked;
    // A slab without backed pages need not be filled.
    if (pages.count < kShortestWhole && !place.zero) filling_.begin(place.region, place.page);
  }
  Span* last = span;
  for (;;) {
    make_small(last, last->first_page, shape);
    last->unbacked_pages = unbacked;
    unbacked = 0;
    publish_span(region_of(last), last, pages, shape.class_byte);
    count_operation();
    if (--most == 0) return {span, fresh};
    Span* const another = unpark_span(pages, &none);
    if (another == nullptr) return {span, fresh};
    last->next = another;
    last = another;
  }
}

// The spans are freed in the order in which they came. Otherwise a batch would be reversed among
// the standing spans. The next round's batches begin at other places, so after some hundred
// rounds of a program that frees in order, no span would be followed by its neighbour.
void PageHeap::free_spans(Span* last) {
  Span* first = reversed(last);
  Lock lock(mutex_);
  clock_.read();
  for (Span* next; first != nullptr; first = next) {
    next = List<Span>::next(first);
    free_span(first);
    count_operation();
  }
}

void PageHeap::free_pages_of(const Span* span, uint32_t pages) {
  Lock lock(mutex_);
  clock_.read();
  release_some(span, pages);
  count_operation();
}

void PageHeap::release_some(const Span* span, uint32_t pages) {
  Region* const region = region_of(span);
  for_each_run(pages, [&](unsigned first, unsigned length, uint32_t run) {
    const PageId page(span->first_page + first);
    unpublish_pages(region, page, Pages(length));
    release_pages(region, page, Pages(length), (span->unbacked_pages & run) >> first,
                  clock_.now_ms());
  });
}

void PageHeap::free_span(Span* span) {
  const Pages pages(span->page_count);
  if (LOAM_UNLIKELY(span->kind == SpanKind::kPartial)) {
    release_some(
        span, static_cast<uint32_t>(bit_range(0, span->page_count)) & ~span->partial.absent_pages);
    return return_span_record(region_of(span), span);
  }
  if (const uint32_t unbacked = span->unbacked_pages; LOAM_LIKELY(unbacked == 0)) {
    used_ -= pages;
    standing_spans_.add_waiting(pages);
    LOAM_LIKELY(may_stand(span)) ? let_stand(span) : park_span(span, clock_.now_ms());
    note_dirty();
  } else {
    Region* region = region_of(span);
    const PageId first(span->first_page);
    unpublish_span(region, span, pages);
    return_span_record(region, span);
    release_pages(region, first, pages, unbacked, clock_.now_ms());
  }
}

}  // namespace loam
