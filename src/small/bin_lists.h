// In which of a bin's lists a span is, by the used share of its slots (bin.h).
#pragma once

#include "small/bin.h"

namespace loam::bin_lists {

// These numbers are above every list. None of them is 0xff, because give_scattered() computes 0xff
// for a span without a used slot; so that number always differs from the span's list.
inline constexpr uint8_t kNoList = 0xfe;
inline constexpr uint8_t kLeaving = 0xfd;    // in no list either: empty, and about to go back
inline constexpr uint8_t kEmptyList = 0xfc;  // Bin::empty_

// A span's list in the top byte: used * kLists / slots, rounded down, by multiplication. The scale
// is rounded up, and 1 is subtracted. So the result is exact, and a span without a used slot gets
// 0xff.
inline constexpr unsigned kListShift = 24;
constexpr uint32_t scaled_list(unsigned used, uint32_t scale) { return used * scale - 1; }
constexpr unsigned list_of(unsigned used, const SizeClassInfo& info) {
  return used == 0 ? 0 : scaled_list(used, info.list_scale) >> kListShift;
}

// pre: not all of its slots are free
inline unsigned list_of_partial(const Span* span) {
  const unsigned own = static_cast<unsigned>(span->partial.own_slots);
  return (own - span->free_slots) * Bin::kLists / own;
}

constexpr bool lists_are_exact() {
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const unsigned slots = kSizeClasses[c].slots;
    if (scaled_list(0, kSizeClasses[c].list_scale) >> kListShift != 0xff) return false;
    for (unsigned used = 0; used < slots; ++used) {
      if (list_of(used, kSizeClasses[c]) != used * Bin::kLists / slots) return false;
    }
  }
  return true;
}
static_assert(lists_are_exact(), "a list is an eighth of the slots");

}  // namespace loam::bin_lists
