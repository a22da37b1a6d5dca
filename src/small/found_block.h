// What a pointer turns out to be, off the fast path, as far as the map and the table of huge blocks
// know.
//
// Without a lock. Any value is answered; the answer about a block that another thread frees
// meanwhile may be the one from before or after.
#pragma once

#include "map/page_map.h"
#include "pages/huge_map.h"
#include "small/partial_span.h"
#include "small/small_heap.h"

namespace loam {

struct FoundBlock {
  enum Kind {
    kNothing,
    kSmall,    ///< a slot, or a block of a mixed span
    kLarge,    ///< a run of pages
    kHuge,     ///< a mapping of its own
    kPrivate,  ///< what a private heap should know more of
  } kind = kNothing;
  Span* span = nullptr;         ///< kSmall, kLarge
  const void* owner = nullptr;  ///< kPrivate: the record that its span, or its own mapping, names
  size_t bytes = 0;             ///< usable
};

[[nodiscard]] FoundBlock find_block(const void* block);

inline void found_huge(const HugeMap::Entry& entry, FoundBlock* found) {
  found->kind = entry.heap == 0 ? FoundBlock::kHuge : FoundBlock::kPrivate;
  found->bytes = entry.has_walls() ? entry.requested : entry.mapped;
  found->owner = reinterpret_cast<const void*>(entry.heap);
}

/// pre: span == span_at(block)
[[nodiscard]] LOAM_INLINE FoundBlock find_block_in(Span* span, const void* block) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  FoundBlock found;
  if (span == nullptr) {
    // A large mapping may lie in a gibibyte that also holds a region.
    const HugeMap::Entry entry = huge_map.find(address);
    if (entry.address != 0) found_huge(entry, &found);
    return found;
  }
  if (span->heap == kPrivateHeap) {
    // acquire: pairs with the release with which the record is named
    if (const void* owner = __atomic_load_n(&span->owned.run, __ATOMIC_ACQUIRE)) {
      found.kind = FoundBlock::kPrivate;
      found.owner = owner;
    }
    return found;
  }
  if (span->run_kind() == SpanKind::kEmpty) return found;
  // A block of the default heap by its class byte, read once: the kind may change below our eyes
  // when another thread makes the span of this small block mixed. Either answer is right then, for
  // the block stays as it was.
  const size_t size_class = class_at(block);
  if (size_class == 0 && span->run_kind() == SpanKind::kLarge) {
    if (address != span_base(span)) return found;
    found.kind = FoundBlock::kLarge;
    found.span = span;
    found.bytes = Pages(span->large.pages).bytes();
    return found;
  }
  if (size_class == kMixedClass) {
    found.bytes = default_small_heap.mixed().block_bytes(address);
    if (found.bytes == 0) return found;
    found.kind = FoundBlock::kSmall;
    found.span = span;
    return found;
  }
  if (size_class == 0 && !is_cut_into_slots(span->run_kind())) return found;
  const SizeClassInfo& info = class_info(index_of(span->size_class));
  if (!begins_slot(info, address - span_base(span))) return found;
  found.kind = FoundBlock::kSmall;
  found.span = span;
  found.bytes = info.bytes;
  return found;
}

}  // namespace loam
