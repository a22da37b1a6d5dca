// Freed runs that stand unchanged, named by the map as before, for a request of just their length.
// Empty spans stand with the page heap, batches of large runs in a shard (page_shard.h).
//
//   newest -> ... -> oldest          entries: an empty span; or a batch of large runs of one length,
//     |                              by its first run, which names the others (Span::standing)
//     run -> run -> run
//
// A request of the newest entry's length takes it as it stands, without a cut, a join or an entry
// of the map. A request of another length first joins kJoinedAtOnce runs to the parked runs of the
// same place (parked_runs.h), the oldest first, and more each time that it finds nothing. All
// entries are joined before any unbacked page is taken, and after they have stood for as long as
// parked runs wait.
//
// Lock: as for the parked runs of the place.
#pragma once

#include "map/records.h"

namespace loam {

/// How many standing runs are joined to the parked ones before a search, and parked runs to the
/// bitmaps. Chosen: a pause of some 5 us, and a search costs as much as joining one run. Fewer
/// would cause more searches in vain; more would join runs that the next requests could have taken
/// as they are.
inline constexpr unsigned kJoinedAtOnce = 32;

class StandingRuns {
 public:
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] Span* newest() const { return entries_.front(); }

  LOAM_INLINE void push(Span* entry, uint64_t now_ms) {
    entry->standing.since_ms = now_ms;
    entries_.push_front(entry);
  }
  /// Takes the entries from the newest one to `last`, linked through `next`.
  LOAM_INLINE void pop_newest(Span* last) { entries_.remove_front(last); }

  /// Takes the oldest entry if it came before `before_ms`, else null.
  [[nodiscard]] Span* pop_older(uint64_t before_ms) {
    Span* const entry = entries_.back();
    if (entry == nullptr || entry->standing.since_ms >= before_ms) return nullptr;
    entries_.remove(entry);
    return entry;
  }

  [[nodiscard]] const List<Span>& entries() const { return entries_; }

 private:
  List<Span> entries_;
};

}  // namespace loam
