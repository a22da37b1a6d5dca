// The bits in a small span's record that mark its free slots.
#pragma once

#include "map/records.h"

namespace loam {

// Call under the bin's lock. Owners of blocks read words without it (seems_live(), and the cache's
// search for double frees). relaxed: a live block's bit is clear before and after the store.
inline void store_word(uint64_t* word, uint64_t bits) {
  __atomic_store_n(word, bits, __ATOMIC_RELAXED);
}

inline void mark_all_free(Span* span, unsigned slots) {
  over_words(0, slots,
             [span](unsigned w, uint64_t mask) { store_word(&span->free_bits[w], mask); });
}

inline unsigned count_free(const Span* span) {
  unsigned bits = 0;
  const unsigned words = is_partial(span) ? kMaxPartialSlots / 64 : kMaxSlots / 64;
  for (unsigned i = 0; i < words; ++i) bits += count_bits(span->free_bits[i]);
  return bits;
}

inline bool slot_is_free(const Span* span, unsigned slot) {
  return (span->free_bits[slot >> 6] >> (slot & 63)) & 1;
}

// The number of free slots in the longest run of neighbours, at most `enough`.
inline unsigned longest_free_run(const Span* span, unsigned slots, unsigned enough) {
  unsigned run = 0, longest = 0;
  for (unsigned slot = 0; slot < slots && longest < enough; ++slot) {
    run = slot_is_free(span, slot) ? run + 1 : 0;
    if (run > longest) longest = run;
  }
  return longest;
}

}  // namespace loam
