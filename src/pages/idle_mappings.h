// Mappings of freed blocks that had a mapping of their own, kept for the next such block. Their
// pages need not be faulted in again.
//
//   kept     only after a request arrived that a recently unmapped one could have served: a program
//            that frees its only large buffer therefore keeps nothing. Keeping ends when no kept
//            mapping was taken or requested for kKeptMs
//   pages    of all kept mappings together: at most the pages that the heap otherwise uses, or
//            kMostIdle
//   go       after kKeptMs; and when the heap takes fresh pages meanwhile, as many pages, so that
//            kept mappings raise no peak
//
// Not thread-safe: the page heap's lock covers it.
#pragma once

#include "pages/purge_policy.h"

namespace loam {

class IdleMappings {
 public:
  static constexpr unsigned kMost = 8;
  /// The time within which a program is likely to use the same memory again. 500 ms
  static constexpr uint64_t kKeptMs = PurgePolicy::kSoonMs;
  /// Chosen: the most that a process may hold when it uses nothing and makes no more calls. 256 MiB
  static constexpr Pages kMostIdle{65'536};

  struct Mapping {
    uintptr_t address = 0;  ///< 0: none
    Pages pages{};
    uint64_t since_ms = 0;
  };

  [[nodiscard]] Pages pages() const { return pages_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }

  /// Whether freed mappings are kept now. Call for a request of `wanted` pages that can be served
  /// without a kept mapping; it counts as a request for one.
  [[nodiscard]] bool are_kept(Pages wanted, uint64_t now_ms) {
    note_missed(wanted, now_ms);
    return keeps_;
  }

  /// Takes pages for a block of `wanted` pages at a multiple of `alignment` bytes. They are the
  /// first pages of the shortest mapping that is long enough; of the longest if the block `grows`,
  /// because it will need the pages behind it next. If every mapping is shorter, it takes all of
  /// the longest, which the caller may extend. Address 0 where no mapping fits.
  [[nodiscard]] Mapping take(Pages wanted, size_t alignment, uint64_t now_ms, bool grows = false) {
    Mapping* best = find(wanted, alignment, grows);
    if ((best == nullptr || best->pages < wanted) && join()) best = find(wanted, alignment, grows);
    if (best == nullptr) {
      note_missed(wanted, now_ms);
      return {};
    }
    taken_ms_ = now_ms;
    Mapping taken = *best;
    if (taken.pages > wanted) taken.pages = wanted;
    drop(best, 0, taken.pages);
    return taken;
  }

  /// Takes at most `most` pages that begin at this address; 0 if there are none.
  [[nodiscard]] Pages take_at(uintptr_t address, Pages most, uint64_t now_ms) {
    Pages taken{};
    while (taken < most) {
      Mapping* const next = beginning_at(address + taken.bytes());
      if (next == nullptr) break;
      const Pages left = most - taken;
      const Pages here = next->pages < left ? next->pages : left;
      drop(next, 0, here);
      taken += here;
      taken_ms_ = now_ms;
    }
    return taken;
  }

  /// Keeps a freed mapping. False where mappings are not kept, or there are too many of them: the
  /// caller then releases it.
  [[nodiscard]] bool keep(uintptr_t address, Pages pages, uint64_t now_ms) {
    if (!keeps_) {
      gone_ = now_ms - gone_ms_ <= kKeptMs ? gone_ + pages : pages;
      gone_ms_ = now_ms;
      return false;
    }
    if (count_ == kMost && !join()) return false;
    mappings_[count_++] = {address, pages, now_ms};
    pages_ += pages;
    return true;
  }

  /// Removes at most `most` pages from the end of the oldest mapping; the caller releases them.
  /// pre: not empty, `most` is not 0
  [[nodiscard]] Mapping shed(Pages most) {
    Mapping* oldest = mappings_;
    for (Mapping& mapping : *this) {
      if (mapping.since_ms < oldest->since_ms) oldest = &mapping;
    }
    Mapping gone = *oldest;
    if (gone.pages > most) gone.pages = most;
    const Pages before = oldest->pages - gone.pages;
    gone.address += before.bytes();
    drop(oldest, before.count, gone.pages);
    return gone;
  }

  /// Pages that were kept for too long, or are too many for a heap that otherwise uses `used`
  /// pages.
  [[nodiscard]] Pages due(Pages used, uint64_t now_ms) {
    Pages old{};
    for (const Mapping& mapping : *this) {
      if (now_ms - mapping.since_ms > kKeptMs) old += mapping.pages;
    }
    if (old != Pages(0) && now_ms - taken_ms_ > kKeptMs) keeps_ = false;
    const Pages most = used > kMostIdle ? used : kMostIdle;
    const Pages beyond = pages_ > most ? pages_ - most : Pages(0);
    return old > beyond ? old : beyond;
  }

 private:
  friend struct CounterFields;
  Mapping* begin() { return mappings_; }
  Mapping* end() { return mappings_ + count_; }

  void note_missed(Pages wanted, uint64_t now_ms) {
    taken_ms_ = now_ms;
    if (wanted <= gone_ && now_ms - gone_ms_ <= kKeptMs) keeps_ = true;
  }

  Mapping* find(Pages wanted, size_t alignment, bool grows) {
    Mapping* best = nullptr;
    for (Mapping& mapping : *this) {
      if (mapping.pages >= wanted ? (mapping.address & (alignment - 1)) != 0
                                  : alignment > kPageBytes)
        continue;
      if (best == nullptr || is_better(mapping.pages, best->pages, wanted, grows)) best = &mapping;
    }
    return best;
  }

  Mapping* beginning_at(uintptr_t address) {
    for (Mapping& mapping : *this) {
      if (mapping.address == address) return &mapping;
    }
    return nullptr;
  }

  static bool is_better(Pages one, Pages other, Pages wanted, bool grows) {
    if (grows || one < wanted || other < wanted) return one > other;
    return one < other;
  }

  // Joins mappings that lie side by side. It is done late, because a block that grows needs the
  // mapping behind it. False where no two lie side by side.
  bool join() {
    const unsigned before = count_;
    while (join_two()) {
    }
    return count_ != before;
  }

  bool join_two() {
    for (Mapping& first : *this) {
      Mapping* const behind = beginning_at(first.address + first.pages.bytes());
      if (behind == nullptr) continue;
      first.pages += behind->pages;
      if (behind->since_ms > first.since_ms) first.since_ms = behind->since_ms;
      *behind = mappings_[--count_];
      return true;
    }
    return false;
  }

  // pre: the pages are at the mapping's beginning or at its end
  void drop(Mapping* mapping, size_t before, Pages pages) {
    pages_ -= pages;
    mapping->pages -= pages;
    if (before == 0) mapping->address += pages.bytes();
    if (mapping->pages == Pages(0)) *mapping = mappings_[--count_];
  }

  Mapping mappings_[kMost] = {};
  unsigned count_ = 0;
  bool keeps_ = false;
  Pages pages_{};
  Pages gone_{};           // of the mappings last released, each within kKeptMs of the one before
  uint64_t gone_ms_ = 0;   // when the last of them was released
  uint64_t taken_ms_ = 0;  // when a mapping was last taken or requested
};

}  // namespace loam
