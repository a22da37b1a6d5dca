// Counts every byte of the heap by its use, at one moment.
//
//   used by spans  = live_small + cached slots + span_free + tails    (mixed spans included)
//   of a class:     live + cached + free = slots + mixed
//   used           = used by spans + large runs, live and cached
//   committed      = used + dirty + clean (purged or never touched)
//   resident (est) = used + dirty + huge + metadata - unbacked
//
// A visitor gets the figures of the classes one after the other. All of them would take about 24
// KB, more than a thread with a small stack may have left.
#pragma once

#include "small/bin.h"

namespace loam {

/// The class's bins, and where its other slots are.
struct ClassSnapshot : BinStats {
  size_t live;        ///< slots in the program's hands
  size_t cached;      ///< slots in magazines, in the remote queue and in the stash
  size_t mixed;       ///< blocks of the class in mixed spans, live or cached
  size_t tail_bytes;  ///< bytes of its spans' own pages that are in no slot
};

struct Snapshot {
  size_t live_small_bytes;
  size_t live_large_bytes;  ///< runs of pages, whole pages counted; of private heaps too
  size_t live_huge_bytes;   ///< own mappings
  size_t huge_blocks;
  size_t cached_bytes;
  size_t cached_run_bytes;  ///< part of cached_bytes: freed runs of pages that threads keep
  size_t span_free_bytes;
  size_t span_tail_bytes;
  size_t mixed_spans;  ///< sparse spans that serve every class
  size_t mixed_span_bytes;
  size_t mixed_free_bytes;     ///< part of span_free_bytes
  uint64_t mixed_conversions;  ///< spans that became mixed since the start
  size_t unbacked_bytes;       ///< pages inside live spans that were given back, or not used yet
  size_t used_bytes;           ///< pages in runs
  size_t dirty_bytes;          ///< free pages that are backed
  size_t committed_bytes;
  size_t reserved_bytes;
  size_t metadata_bytes;
  size_t peak_used_bytes;
  size_t largest_free_bytes;
  size_t threads;
  uint64_t purged_bytes;
  uint64_t refused_calls;

  [[nodiscard]] size_t live_bytes() const {
    return live_small_bytes + live_large_bytes + live_huge_bytes;
  }
};

using VisitClass = void (*)(void* context, unsigned size_class, const ClassSnapshot& figures);

/// Exact when no other thread allocates; otherwise within a few blocks. `visit` gets the classes in
/// use, while no lock is held.
void take_snapshot(Snapshot* out, VisitClass visit, void* context);

template <class Visit>
void take_snapshot(Snapshot* out, Visit visit) {
  take_snapshot(
      out, [](void* it, unsigned c, const ClassSnapshot& k) { (*static_cast<Visit*>(it))(c, k); },
      &visit);
}

/// The figures of one class.
[[nodiscard]] ClassSnapshot look_at_class(unsigned size_class);

}  // namespace loam
