// Partial spans: spans of which some pages are not their own.
//
// A span of slots above 8 KiB (others become mixed: mixed_shard.h) that few old blocks pin lends
// its whole free pages to the page heap, and never gets them back; and where only runs are left
// that are shorter than the class's spans, one of them becomes a span that ends early. Both are a
// span's record with a mask of absent pages: slots count from the first page as ever, those that
// reach into an absent page are neither free nor anybody's, and when the others are all free, the
// pages that are left go back.
#pragma once

#include "small/split_classes.h"

namespace loam {

/// Spans that one look for pages to lend meets. Chosen: as a search for a donor of mixed spans.
inline constexpr unsigned kLendScan = 128;

/// Pages of the span that slots from `first` to `last` touch, as a mask.
[[nodiscard]] inline uint32_t pages_of_slots(unsigned first, unsigned last,
                                             const SizeClassInfo& info) {
  const unsigned first_page = first * info.bytes >> kPageShift;
  const unsigned last_page = ((last + 1) * info.bytes - 1) >> kPageShift;
  return static_cast<uint32_t>(bit_range(first_page, last_page - first_page + 1));
}
[[nodiscard]] inline uint32_t pages_of_slot(unsigned slot, const SizeClassInfo& info) {
  return pages_of_slots(slot, slot, info);
}

/// Of any span, whoever looks.
[[nodiscard]] LOAM_INLINE bool is_partial(const Span* span) {
  return span->run_kind() == SpanKind::kPartial;
}
/// relaxed: also for who owns a block of the span and has no lock; that block's pages are never
/// among them
[[nodiscard]] inline uint32_t absent_pages(const Span* span) {
  const SpanKind kind = span->run_kind();
  if (kind == SpanKind::kPartial)
    return __atomic_load_n(&span->partial.absent_pages, __ATOMIC_RELAXED);
  return kind == SpanKind::kMixed ? __atomic_load_n(&span->mixed.absent_pages, __ATOMIC_RELAXED)
                                  : 0;
}
/// Whether a slot reaches into such a page.
[[nodiscard]] inline bool is_absent(const Span* span, unsigned slot, const SizeClassInfo& info) {
  return (absent_pages(span) & pages_of_slot(slot, info)) != 0;
}

}  // namespace loam
