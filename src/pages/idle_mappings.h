// Mappings of blocks that had one of their own and were freed, kept for the next such block: what
// they hold need not be faulted in again.
//
//   kept     only once a request came that one which went shortly before would have served: who frees his one large buffer keeps
//            nothing of it. Until none was taken for kKeptMs
//   pages    of all of them, at most what the heap uses otherwise, or kMostIdle
//   go       after kKeptMs; and for memory that the heap takes fresh meanwhile, as many pages, so that keeping them raises no peak
//
// Not thread-safe: the page heap's lock covers it.
#pragma once

#include "pages/purge_policy.h"

namespace loam {

class IdleMappings {
 public:
  static constexpr unsigned kMost = 8;
  /// As long as a program is likely to use again what it used. 500 ms
  static constexpr uint64_t kKeptMs = PurgePolicy::kSoonMs;
  /// Chosen: what a process may hold that uses nothing and in which nobody calls any more. 256 MiB
  static constexpr Pages kMostIdle{65'536};

  struct Mapping {
    uintptr_t address = 0;  ///< 0: none
    Pages pages{};
    uint64_t since_ms = 0;
  };

  [[nodiscard]] Pages pages() const { return pages_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }

  /// A block of so many pages is asked for that could do without: whether what is freed is kept,
  /// this time or the next.
  [[nodiscard]] bool are_kept(Pages wanted, uint64_t now_ms) {
    note_missed(wanted, now_ms);
    return keeps_;
  }

  /// For a block of so many pages at a multiple of `alignment` bytes: the first of the shortest
  /// mapping that holds them, or of the longest where the block `grows` (what is behind it will be
  /// wanted next); or all of the longest, which may be made longer. None where nothing is kept.
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

  /// At most so many pages that begin at this address, or none.
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

  /// Takes what was freed. False where nothing is kept, or not in so many pieces: it goes.
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

  /// Takes at most so many pages out of the oldest, from its end on: they go. pre: not empty, most
  /// is not 0
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

  /// Pages that were kept for too long, or are too many for a heap that uses `used` otherwise.
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

  // Makes one of those that lie side by side: late, since whose block grows wants what is behind
  // it. False where there are none.
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

  // pre: they are at the mapping's begin or at its end
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
  Pages gone_{};           // of mappings that were not kept, shortly one after the other
  uint64_t gone_ms_ = 0;   // when the last of them went
  uint64_t taken_ms_ = 0;  // when one was taken, or asked for
};

}  // namespace loam
