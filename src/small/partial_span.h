// Partial spans: spans to which some of their pages do not belong.
//
// There are two kinds. A span of slots above 8 KiB that few old blocks pin lends its whole free
// pages to the page heap, and never gets them back. (Spans of smaller slots become mixed:
// mixed_part.h.) If only runs are left that are shorter than the class's spans, one of these runs
// becomes a span that ends early. Both kinds have a record with a mask of absent pages. Slots count
// from the first page as in other spans. Slots that reach into an absent page are neither free nor
// handed out. When all other slots are free, the remaining pages go back.
#pragma once

#include "small/split_classes.h"

namespace loam {

/// The most spans that one search for pages to lend, or for spans that become mixed, visits.
/// Measured: with half, one program's peak is 1 % larger (decision 12).
inline constexpr unsigned kSpansVisited = 128;

/// The pages of the span that slots from `first` to `last` touch, as a mask.
[[nodiscard]] inline uint32_t pages_of_slots(unsigned first, unsigned last,
                                             const SizeClassInfo& info) {
  const unsigned first_page = first * info.bytes >> kPageShift;
  const unsigned last_page = ((last + 1) * info.bytes - 1) >> kPageShift;
  return static_cast<uint32_t>(bit_range(first_page, last_page - first_page + 1));
}
[[nodiscard]] inline uint32_t pages_of_slot(unsigned slot, const SizeClassInfo& info) {
  return pages_of_slots(slot, slot, info);
}

/// For any span, with or without a lock.
[[nodiscard]] LOAM_INLINE bool is_partial(const Span* span) {
  return span->run_kind() == SpanKind::kPartial;
}
/// relaxed: a thread that owns a block of the span may call this without a lock; that block's pages
/// are never absent
[[nodiscard]] inline uint32_t absent_pages(const Span* span) {
  const SpanKind kind = span->run_kind();
  if (kind == SpanKind::kPartial)
    return __atomic_load_n(&span->partial.absent_pages, __ATOMIC_RELAXED);
  return kind == SpanKind::kMixed ? __atomic_load_n(&span->mixed.absent_pages, __ATOMIC_RELAXED)
                                  : 0;
}
/// Whether a slot reaches into an absent page.
[[nodiscard]] inline bool is_absent(const Span* span, unsigned slot, const SizeClassInfo& info) {
  return (absent_pages(span) & pages_of_slot(slot, info)) != 0;
}

}  // namespace loam
