// Freed runs that stand unchanged, named by the map as before, for a request of just their length.
// Empty spans stand with the page heap, in a list for each length. Batches of large runs stand in a
// shard (page_shard.h).
//
//   newest -> ... -> oldest         entries: an empty span; or a batch of large runs of one length,
//     |                              by its first run, which names the others (Span::standing)
//     run -> run -> run
//
// A request takes the newest entry of its length as it stands, without a cut, a join or an entry of
// the map. In a shard only the newest entry is looked at. A request that finds none there, and none
// among the parked runs of the same place (parked_runs.h), joins kJoinedAtOnce runs to these, and
// more each time that it still finds none. The longest spans join first, and the oldest of a
// length. All entries are joined before any unbacked page is taken, and after they have stood for
// as long as parked runs wait.
//
// Lock: as for the parked runs of the place.
#pragma once

#include "base/bits.h"
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

/// Standing spans of all lengths. Lock: the page heap's.
class StandingSpans {
 public:
  /// The newest span of this length, or null.
  [[nodiscard]] LOAM_INLINE Span* newest(Pages pages) const {
    return (lengths_ >> pages.count & 1) != 0 ? of_length_[pages.count].newest() : nullptr;
  }
  LOAM_INLINE void push(Span* span, uint64_t now_ms) {
    of_length_[span->page_count].push(span, now_ms);
    lengths_ |= bit_of(span->page_count);
  }
  /// As StandingRuns::pop_newest().
  LOAM_INLINE void pop_newest(Span* last) {
    const unsigned pages = last->page_count;
    of_length_[pages].pop_newest(last);
    note_left(pages);
  }
  /// Takes the oldest span of the greatest length of which one came before `before_ms`, else null.
  [[nodiscard]] Span* pop_older(uint64_t before_ms) {
    for (uint64_t lengths = lengths_; lengths != 0;) {
      const unsigned pages = highest_bit(lengths);
      if (Span* const span = of_length_[pages].pop_older(before_ms)) {
        note_left(pages);
        return span;
      }
      lengths &= ~bit_of(pages);
    }
    return nullptr;
  }

  /// The pages of spans that wait, standing here or parked (parked_runs.h).
  [[nodiscard]] Pages waiting() const { return waiting_; }
  void add_waiting(Pages pages) { waiting_ += pages; }
  void remove_waiting(Pages pages) { waiting_ -= pages; }

  [[nodiscard]] const StandingRuns& of_length(unsigned pages) const { return of_length_[pages]; }
  /// Whether each list that is not empty has its bit, and no other.
  [[nodiscard]] bool is_valid() const {
    uint64_t lengths = 0;
    for (unsigned pages = 0; pages <= kMaxSpanPages; ++pages) {
      if (!of_length_[pages].entries().is_valid()) return false;
      if (!of_length_[pages].empty()) lengths |= bit_of(pages);
    }
    return lengths == lengths_;
  }

 private:
  friend struct CounterFields;
  static uint64_t bit_of(unsigned pages) { return uint64_t{1} << pages; }
  LOAM_INLINE void note_left(unsigned pages) {
    if (of_length_[pages].empty()) lengths_ &= ~bit_of(pages);
  }

  uint64_t lengths_ = 0;  // of which a span stands
  StandingRuns of_length_[kMaxSpanPages + 1];
  Pages waiting_{};
};
static_assert(kMaxSpanPages < 64, "a bit for each length");

}  // namespace loam
