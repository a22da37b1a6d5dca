// Freed runs that wait for the next request of their kind: joined with each other, but not with what the blocks'
// bitmaps hold.
//
//   page_span:  ... | tag|7 . . tag|7 | live | tag|9 . tag|9 | live ...      (Knuth's boundary tags)
//   lists_[n] -> record -> record       runs of n pages, the last freed first; occupied_ marks the lists in use
//
// So freeing joins and a request finds the shortest run that holds it in O(1), without a look at a bitmap. A parked
// run keeps its record (kind kParked; no page names it but by a tag, so nobody takes it for a block) and the time
// when it was parked. It lies in one block. Runs that wait in different places do not join: a tag says whose it is.
//
// Sources: D. E. Knuth, "The Art of Computer Programming", volume 1, section 2.5, algorithm C; Wilson et al.,
// "Dynamic storage allocation: a survey and critical review", 1995, sections 3.5 (what waits) and 3.6 (fits).
// Lock: number 0 (spans' runs) has the page heap's, number n > 0 (large runs) that of its shard n - 1.
#pragma once

#include "map/page_map.h"

namespace loam {

class ParkedRuns {
 public:
  /// The number of the place where spans' runs are parked; those of large runs follow, one a shard.
  static constexpr unsigned kSpansRuns = 0;

  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] size_t count() const { return count_; }

  /// Joins what is freed with the parked runs of the same kind before and behind it, in its block. The longer part's
  /// time is the whole's: a long run that is cut and mended all the time must still get old.
  /// `number` is this place's. pre: span->large.pages <= kPagesPerBlock, the run lies in one block, and no page names
  /// the record
  LOAM_INLINE void push(Span* span, unsigned number, uint64_t now_ms) {
    Region* region = region_of(span);
    const uint32_t begin = span->first_page;
    uint64_t longest = span->large.pages;
    const uint32_t end = begin + static_cast<uint32_t>(longest);
    LOAM_ASSERT(begin / kPagesPerBlock == (end - 1) / kPagesPerBlock);
    span->kind = SpanKind::kParked;
    span->list = static_cast<uint8_t>(number);
    span->heap = 0;
    span->large.parked_ms = now_ms;
    if (begin % kPagesPerBlock != 0) {
      if (Span* before = free_run_at(region, begin - 1, number)) {
        put_tag(region, begin - 1, 0);
        span->first_page = before->first_page;
        join(region, span, before, &longest);
      }
    }
    if (end % kPagesPerBlock != 0) {
      if (Span* behind = free_run_at(region, end, number)) {
        put_tag(region, end, 0);
        join(region, span, behind, &longest);
      }
    }
    const uint32_t tag = tag_of(region, span);
    put_tag(region, span->first_page, tag);
    put_tag(region, last_page(span), tag);
    link(span);
  }

  /// The first `pages` pages of the last one of exactly this length, with `record` for their record; the rest waits on,
  /// with its time. pre: shortest(length) == length > pages; nobody uses the record
  LOAM_INLINE void cut(unsigned length, uint32_t pages, Span* record) {
    Span* rest = lists_[length].front();
    Region* region = region_of(rest);
    unlink(rest, length);
    record->first_page = rest->first_page;
    record->large.pages = pages;
    put_tag(region, rest->first_page, 0);
    rest->first_page += pages;
    rest->large.pages = length - pages;
    put_tag(region, rest->first_page, tag_of(region, rest));  // the last page's stays
    link(rest);
  }

  /// The last one of exactly this length, which waits on. pre: shortest(length) == length
  [[nodiscard]] const Span* first(unsigned length) const { return lists_[length].front(); }

  /// The last one of exactly this length. pre: shortest(length) == length
  [[nodiscard]] Span* pop(unsigned length) {
    Span* span = lists_[length].front();
    take_out(span);
    return span;
  }

  /// The length of the shortest that holds `length` pages; above kPagesPerBlock when there is none.
  [[nodiscard]] unsigned shortest(unsigned length) const { return occupied_.find_set(length); }

  /// One that holds `length` pages, the shortest; null if all are shorter.
  [[nodiscard]] Span* pop_fitting(unsigned length) {
    const unsigned found = shortest(length);
    return found > kPagesPerBlock ? nullptr : pop(found);
  }

  /// The oldest one of the longest; null if there is none.
  [[nodiscard]] Span* pop_longest() {
    for (unsigned w = decltype(occupied_)::kWords; w-- > 0;) {
      if (occupied_.words[w] == 0) continue;
      Span* span = lists_[w * 64 + highest_bit(occupied_.words[w])].back();
      take_out(span);
      return span;
    }
    return nullptr;
  }

  /// One that was parked before that time, of any length from `*length` on, which moves; null if there is none.
  [[nodiscard]] Span* pop_older(uint64_t before_ms, unsigned* length) {
    for (; (*length = occupied_.find_set(*length)) != kBins; ++*length) {
      Span* span = lists_[*length].back();
      if (span->large.parked_ms >= before_ms) continue;
      take_out(span);
      return span;
    }
    return nullptr;
  }

  /// This one goes. pre: it waits here
  void take_out(Span* span) {
    Region* region = region_of(span);
    put_tag(region, span->first_page, 0);
    put_tag(region, last_page(span), 0);
    unlink(span, static_cast<unsigned>(span->large.pages));
  }

  /// All that wait here. O(runs)
  [[nodiscard]] Pages pages() const {
    Pages found{};
    for (const List<Span>& list : lists_) {
      for (const Span* span = list.front(); span != nullptr; span = List<Span>::next(span)) {
        found += Pages(span->large.pages);
      }
    }
    return found;
  }

  /// Lists, marks, tags and the count agree, and no two neighbours of a block wait apart. O(pages)
  [[nodiscard]] bool is_valid(unsigned number) const {
    size_t count = 0;
    for (unsigned n = 0; n <= kPagesPerBlock; ++n) {
      if (occupied_.test(n) == lists_[n].empty() || !lists_[n].is_valid()) return false;
      for (const Span* span = lists_[n].front(); span != nullptr; span = List<Span>::next(span)) {
        if (span->kind != SpanKind::kParked || span->large.pages != n || span->list != number) return false;
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
  static LOAM_INLINE uint32_t tag_of(const Region* region, const Span* span) {
    return kFreeRunTag | uint32_t{span->list} << kFreeRunListShift | static_cast<uint32_t>(span - region->spans);
  }

  LOAM_INLINE void link(Span* span) {
    const unsigned length = static_cast<unsigned>(span->large.pages);
    lists_[length].push_front(span);
    occupied_.set(length);
    ++count_;
  }
  LOAM_INLINE void unlink(Span* span, unsigned length) {
    lists_[length].remove(span);
    if (lists_[length].empty()) occupied_.clear(length);
    --count_;
  }

  // `other` is `span`'s neighbour, and becomes a part of it. Its tag at the far end will be written over.
  LOAM_INLINE void join(Region* region, Span* span, Span* other, uint64_t* longest) {
    const uint64_t its = other->large.pages;
    unlink(other, static_cast<unsigned>(its));
    if (its > *longest) {
      *longest = its;
      span->large.parked_ms = other->large.parked_ms;
    }
    span->large.pages += its;
    if (span->list == kSpansRuns) {
      return_span_record(region, other);
    } else {
      keep_spare_record(region, span->list - 1u, other);
    }
  }

  static bool tags_are_valid(const Span* span) {
    Region* region = region_of(span);
    const uint32_t begin = span->first_page, last = last_page(span);
    if (begin / kPagesPerBlock != last / kPagesPerBlock) return false;
    if (free_run_at(region, begin, span->list) != span || free_run_at(region, last, span->list) != span) return false;
    for (uint32_t page = begin + 1; page < last; ++page) {
      if (region->page_span[page] != 0) return false;
    }
    return (last + 1) % kPagesPerBlock == 0 || free_run_at(region, last + 1, span->list) == nullptr;
  }

  List<Span> lists_[kPagesPerBlock + 1];
  Bitmap<kBins> occupied_{};
  size_t count_ = 0;
};

}  // namespace loam
