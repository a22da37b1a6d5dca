// The kind of block at a pointer, from the map and the table of huge blocks. Not for the fast path.
//
// Takes no lock. Any value has an answer. For a block that another thread frees meanwhile, the
// answer may be from before or after that.
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
    kPrivate,  ///< memory of a private heap, which knows more about it
  } kind = kNothing;
  Span* span = nullptr;         ///< kSmall, kLarge
  const void* owner = nullptr;  ///< kPrivate: the record that the span or the own mapping names
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
    // acquire: pairs with the release that stores the record's address
    if (const void* owner = __atomic_load_n(&span->owned.run, __ATOMIC_ACQUIRE)) {
      found.kind = FoundBlock::kPrivate;
      found.owner = owner;
    }
    return found;
  }
  if (span->run_kind() == SpanKind::kStanding) return found;
  // For a block of the default heap the class byte decides, and is read once. The span's kind may
  // change meanwhile, if another thread makes the span of this small block mixed. Then both answers
  // are correct, because the block does not change.
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
