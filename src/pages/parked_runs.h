// Freed runs that wait for the next request of their kind. They are joined with each other, but not
// with the free pages in the slabs' bitmaps.
//
//   page_span:  ... | tag|7 . . tag|7 | live | tag|9 . tag|9 | live ...   (Knuth's boundary tags)
//   lists_[n] -> record -> record   runs of n pages, the last freed first; occupied_ has the lists
//
// So a free joins neighbours, and a request finds the shortest run that is long enough, both in
// O(1) and without a look at a bitmap. A parked run keeps its record (kind kParked) and the time
// when it was parked. Pages name the record only by a tag, so no look-up takes the run for a block.
// A parked run lies in one slab. Runs that wait in different places do not join: the tag names the
// place.
//
// Sources: D. E. Knuth, "The Art of Computer Programming", volume 1, section 2.5, algorithm C;
// Wilson et al., "Dynamic storage allocation: a survey and critical review", 1995, sections 3.5
// (runs that wait) and 3.6 (fits). Lock: number 0 (spans' runs) has the page heap's, number n
// > 0 (large runs) that of its shard n - 1.
#pragma once

#include "map/page_map.h"

namespace loam {

class ParkedRuns {
 public:
  /// The number of the place where spans' runs are parked. The places of large runs follow, one for
  /// each shard.
  static constexpr unsigned kSpansRuns = 0;

  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] size_t count() const { return count_; }

  /// Parks a freed run, joined with the parked runs of the same kind before and behind it in its
  /// slab. The joined run gets the time of its longest part, because a long run that is cut and
  /// joined again all the time must still become old. `number` is the number of this place. pre:
  /// span->large.pages <= kPagesPerSlab, the run lies in one slab, and no page names the record,
  /// whose `heap` is 0
  LOAM_INLINE void push(Span* span, unsigned number, uint64_t now_ms) {
    Region* const region = one_address(region_of(span));
    const uint32_t begin = span->first_page;
    uint64_t pages = span->large.pages, longest = pages, since_ms = now_ms;
    const uint32_t end = begin + static_cast<uint32_t>(pages);
    LOAM_ASSERT(begin / kPagesPerSlab == (end - 1) / kPagesPerSlab && span->heap == 0);
    const auto join = [&](Span* neighbour) {
      const uint64_t its = neighbour->large.pages;
      unlink(neighbour, static_cast<unsigned>(its));
      pages += its;
      if (its <= longest) return;
      longest = its;
      since_ms = neighbour->large.parked_ms;
    };
    Span* whole = span;
    uint32_t first = begin;
    if (Span* before =
            begin % kPagesPerSlab != 0 ? free_run_at(region, begin - 1, number) : nullptr) {
      // The run before grows and keeps its record. When neighbours are freed in order, only the end
      // of the run moves.
      put_tag(region, begin - 1, 0);
      join(before);
      drop(region, span, number);
      whole = before;
      first = before->first_page;
    } else {
      span->kind = SpanKind::kParked;
      span->list = static_cast<uint8_t>(number);
      ++count_;
    }
    if (Span* behind = end % kPagesPerSlab != 0 ? free_run_at(region, end, number) : nullptr) {
      put_tag(region, end, 0);
      join(behind);
      drop(region, behind, number);
      --count_;
    }
    whole->large.pages = pages;
    whole->large.parked_ms = since_ms;
    const uint32_t tag =
        kFreeRunTag | number << kFreeRunListShift | static_cast<uint32_t>(whole - region->spans);
    put_tag(region, first, tag);
    put_tag(region, first + static_cast<uint32_t>(pages) - 1, tag);
    link(whole, static_cast<unsigned>(pages));
  }

  /// Takes the first `pages` pages of the last freed run of exactly this length, and gives them
  /// `record` as their record. The rest stays parked, with its time. pre: shortest(length) ==
  /// length > pages; the record is unused
  LOAM_INLINE void cut(unsigned length, uint32_t pages, Span* record) {
    cut(lists_[length].front(), pages, record);
  }

  /// The same for the run `rest`. pre: it waits here, and is longer; the record is unused
  LOAM_INLINE void cut(Span* rest, uint32_t pages, Span* record) {
    const unsigned length = static_cast<unsigned>(rest->large.pages);
    Region* const region = one_address(region_of(rest));
    unlink(rest, length);
    const uint32_t first = rest->first_page;
    record->first_page = first;
    record->large.pages = pages;
    rest->first_page = first + pages;
    rest->large.pages = length - pages;
    const uint32_t tag = tag_at(region, first);
    put_tag(region, first, 0);
    put_tag(region, first + pages, tag);  // the last page's tag stays
    link(rest, length - pages);
  }

  /// The last freed run of exactly this length; it stays parked. pre: shortest(length) == length
  [[nodiscard]] const Span* first(unsigned length) const { return lists_[length].front(); }

  /// Takes the last freed run of exactly this length. pre: shortest(length) == length
  [[nodiscard]] Span* pop(unsigned length) {
    Span* span = lists_[length].front();
    take_out(span);
    return span;
  }

  /// Whether a run of exactly this length waits here.
  [[nodiscard]] bool has(unsigned length) const { return occupied_.test(length); }

  /// The length of the shortest run of at least `length` pages; above kPagesPerSlab when there is
  /// none.
  [[nodiscard]] unsigned shortest(unsigned length) const { return occupied_.find_set(length); }

  /// Takes the shortest run of at least `length` pages; null if all runs are shorter.
  [[nodiscard]] Span* pop_fitting(unsigned length) {
    const unsigned found = shortest(length);
    return found > kPagesPerSlab ? nullptr : pop(found);
  }

  /// Takes the oldest of the longest runs; null if there is none.
  [[nodiscard]] Span* pop_longest() {
    for (unsigned w = decltype(occupied_)::kWords; w-- > 0;) {
      if (occupied_.words[w] == 0) continue;
      Span* span = lists_[w * 64 + highest_bit(occupied_.words[w])].back();
      take_out(span);
      return span;
    }
    return nullptr;
  }

  /// Takes a run that was parked before `before_ms`, of any length from `*length` on, and sets
  /// `*length` to its length. Null if there is none.
  [[nodiscard]] Span* pop_older(uint64_t before_ms, unsigned* length) {
    for (; (*length = occupied_.find_set(*length)) != kBins; ++*length) {
      Span* span = lists_[*length].back();
      if (span->large.parked_ms >= before_ms) continue;
      take_out(span);
      return span;
    }
    return nullptr;
  }

  /// Takes this run. pre: it waits here
  LOAM_INLINE void take_out(Span* span) {
    Region* const region = one_address(region_of(span));
    put_tag(region, span->first_page, 0);
    put_tag(region, last_page(span), 0);
    unlink(span, static_cast<unsigned>(span->large.pages));
    --count_;
  }

  /// The pages of all runs that wait here. O(runs)
  [[nodiscard]] Pages pages() const {
    Pages found{};
    for (const List<Span>& list : lists_) {
      for (const Span* span : list) {
        found += Pages(span->large.pages);
      }
    }
    return found;
  }

  /// Whether lists, marks, tags and the count agree, and all neighbours in a slab are joined.
  /// O(pages)
  [[nodiscard]] bool is_valid(unsigned number) const {
    size_t count = 0;
    for (unsigned n = 0; n <= kPagesPerSlab; ++n) {
      if (occupied_.test(n) == lists_[n].empty() || !lists_[n].is_valid()) return false;
      for (const Span* span : lists_[n]) {
        if (span->kind != SpanKind::kParked || span->large.pages != n || span->list != number)
          return false;
        if (!tags_are_valid(span)) return false;
        ++count;
      }
    }
    return count == count_;
  }

 private:
  friend struct CounterFields;
  static constexpr unsigned kBins = 576;  // 0 .. 512, rounded up to whole words

  static uint32_t last_page(const Span* span) {
    return span->first_page + static_cast<uint32_t>(span->large.pages) - 1;
  }
  static LOAM_INLINE void put_tag(Region* region, uint32_t page, uint32_t value) {
    __atomic_store_n(&region->page_span[page], value, __ATOMIC_RELAXED);
  }
  static LOAM_INLINE uint32_t tag_at(const Region* region, uint32_t page) {
    return __atomic_load_n(&region->page_span[page], __ATOMIC_RELAXED);
  }

  LOAM_INLINE void link(Span* span, unsigned length) {
    lists_[length].push_front(span);
    occupied_.set(length);
  }
  LOAM_INLINE void unlink(Span* span, unsigned length) {
    if (LOAM_LIKELY(List<Span>::is_alone(span))) {
      lists_[length] = List<Span>();
      occupied_.clear(length);
    } else {
      lists_[length].remove(span);
    }
  }

  // Frees the record of a run that has become a part of its neighbour.
  static LOAM_INLINE void drop(Region* region, Span* span, unsigned number) {
    if (number == kSpansRuns) {
      return_span_record(region, span);
    } else {
      keep_spare_record(region, number - 1, span);
    }
  }

  static bool tags_are_valid(const Span* span) {
    Region* region = region_of(span);
    const uint32_t begin = span->first_page, last = last_page(span);
    if (begin / kPagesPerSlab != last / kPagesPerSlab) return false;
    if (free_run_at(region, begin, span->list) != span ||
        free_run_at(region, last, span->list) != span)
      return false;
    for (uint32_t page = begin + 1; page < last; ++page) {
      if (region->page_span[page] != 0) return false;
    }
    return (last + 1) % kPagesPerSlab == 0 || free_run_at(region, last + 1, span->list) == nullptr;
  }

  List<Span> lists_[kPagesPerSlab + 1];
  Bitmap<kBins> occupied_{};
  size_t count_ = 0;
};

}  // namespace loam
