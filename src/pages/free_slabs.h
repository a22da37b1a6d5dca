// The free pages in slabs: where a run of them is found, which of them are backed, and which lie
// idle for the longest time.
//
//   dirty()             = sum of |free & backed| over slabs
//   surplus().pages()   = sum of |free & ~backed| over slabs that asked for a huge page
//   a slab is in the age list   <=> it has dirty pages
//   a slab's bound in an index   >= its longest free (dirty) run
//
// Each kind of runs has an index of its slabs by free runs and one by dirty runs. Whole slabs with
// dirty pages have an index of their own.
//
// Lock: the page heap's. promises_less() needs none.
#pragma once

#include "map/page_map.h"
#include "pages/huge_surplus.h"
#include "pages/purge_counts.h"
#include "pages/purge_policy.h"
#include "pages/run_search.h"
#include "pages/slab_index.h"

namespace loam {

class FreeSlabs {
 public:
  enum class From { kDirty, kFree };
  /// The index of whole slabs, by dirty runs; the others are named by their kind.
  static constexpr unsigned kWhole = kRunKinds;

  /// Finds the slab with the shortest run that fits, and the run.
  bool search(From from, unsigned index, unsigned count, unsigned alignment, Slab** slab, Fit* fit);
  /// Whether a slab of that kind has perhaps a dirty run of at least `from` pages and fewer than
  /// `below`.
  [[nodiscard]] LOAM_INLINE bool promises_less(RunKind kind, unsigned from, unsigned below) const {
    return dirty_[unsigned(kind)].promises_less(from, below);
  }
  /// The length of the longest dirty run.
  [[nodiscard]] unsigned longest_backed_run();
  [[nodiscard]] Pages dirty() const { return dirty_pages_; }

  /// Makes a whole slab one of this kind.
  void activate(Slab* slab, RunKind kind, uint8_t shard);
  /// Marks pages of one slab used; returns how many of them were backed before.
  unsigned mark_used(Slab* slab, unsigned first, unsigned count);
  /// As a mask of unbacked pages: all pages, however many there are.
  static constexpr uint32_t kNoneBacked = ~uint32_t{0};
  /// Marks pages of one slab free; true if the slab is whole now. pre: it has no huge page, or the
  /// mask is 0
  bool mark_free(Slab* slab, unsigned first, unsigned count, uint32_t unbacked_mask,
                 uint64_t since_ms);
  /// Forgets a whole slab that is released.
  void forget(Slab* slab, PurgeCounts& counts, uint64_t now_ms);

  /// Asks for a huge page for a slab without a backed page, in a heap that holds `backed` pages;
  /// true if it gets one.
  LOAM_NOINLINE bool ask_for_huge(Slab* slab, Pages backed);
  LOAM_COLD void end_huge(Slab* slab, PurgeCounts& counts, uint64_t now_ms);
  [[nodiscard]] HugeSurplus& surplus() { return surplus_; }
  [[nodiscard]] const HugeSurplus& surplus() const { return surplus_; }

  /// Purges dirty pages of the slab, about `limit`; returns how many.
  Pages purge(Slab* slab, Pages limit, PurgeCounts& counts, uint64_t now_ms);
  struct Purged {
    size_t all = 0;    ///< pages
    size_t young = 0;  ///< of these, pages that count against the budget
  };
  /// Purges what the decision allows, and about `most` pages in all, from the slabs into which the
  /// last free is the longest ago. Passes by huge pages that are neither old nor worth splitting.
  Purged purge_oldest(const PurgePolicy::Decision& decision, size_t most, PurgeCounts& counts,
                      uint64_t now_ms);
  void purge_all(PurgeCounts& counts, uint64_t now_ms);

  [[nodiscard]] bool is_valid() const;
  [[nodiscard]] static bool is_valid(const Slab* slab);

 private:
  friend struct CounterFields;
  void note_age(Slab* slab, bool is_listed, uint64_t since_ms);
  void refresh_dirty(Slab* slab);
  FreeIndex& free_index(unsigned kind) { return free_[kRunKinds - 1 - kind]; }
  DirtyIndex& dirty_index(const Slab* slab) {
    return slab->state == SlabState::kWhole ? dirty_[kWhole] : dirty_[unsigned(slab->kind)];
  }

  DirtyIndex dirty_[kWhole + 1];  // the last one holds whole slabs
  FreeIndex free_[kRunKinds];     // the index of spans is last: see free_index()
  Pages dirty_pages_{};
  HugeSurplus surplus_;
  List<Slab, AgeList> age_;
};

[[nodiscard]] inline PageId first_page_of(const Slab* slab) {
  return PageId(region_of(slab)->number_of(slab) * kPagesPerSlab);
}
[[nodiscard]] inline char* slab_base(const Slab* slab) {
  return static_cast<char*>(region_of(slab)->page_address(first_page_of(slab)));
}

}  // namespace loam
