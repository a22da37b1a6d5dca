// Freed runs that wait, unmerged, for the next request of their length: deferred coalescing (as in Wilson
// et al., "Dynamic storage allocation: a survey and critical review", 1995, section 3.5).
//
// One list per length, the last freed first, and a bitmap of the lists that are not empty. A parked run keeps its
// record (kind kParked, published nowhere) and the time when it was parked.
//
// Lock: the page heap's.
#pragma once

#include "map/records.h"

namespace loam {

class ParkedRuns {
 public:
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] size_t count() const { return count_; }

  /// pre: span->large.pages <= kPagesPerBlock, and no page names the record
  void push(Span* span, uint64_t now_ms) {
    const unsigned length = static_cast<unsigned>(span->large.pages);
    span->kind = SpanKind::kParked;
    span->large.parked_ms = now_ms;
    lists_[length].push_front(span);
    occupied_.set(length);
    ++count_;
  }

  /// The last one of exactly this length; null if there is none.
  [[nodiscard]] Span* pop(Pages length) {
    if (length.count > kPagesPerBlock) return nullptr;
    Span* span = lists_[length.count].front();
    if (span != nullptr) take_out(span);
    return span;
  }

  /// The shortest of at least `length` pages and at most so many more; null if there is none.
  [[nodiscard]] Span* pop_within(Pages length, unsigned more) {
    if (length.count > kPagesPerBlock) return nullptr;
    const unsigned bin = occupied_.find_set(static_cast<unsigned>(length.count));
    return bin == kBins || bin > length.count + more ? nullptr : pop(Pages(bin));
  }

  /// One that holds `length` pages, the shortest; null if all are shorter.
  [[nodiscard]] Span* pop_fitting(unsigned length) {
    const unsigned bin = occupied_.find_set(length);
    return bin == kBins ? nullptr : pop(Pages(bin));
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

  /// Lists, marks and the count agree.
  [[nodiscard]] bool is_valid() const {
    size_t count = 0;
    for (unsigned n = 0; n <= kPagesPerBlock; ++n) {
      if (occupied_.test(n) == lists_[n].empty() || !lists_[n].is_valid()) return false;
      for (const Span* span = lists_[n].front(); span != nullptr; span = List<Span>::next(span)) {
        if (span->kind != SpanKind::kParked || span->large.pages != n) return false;
        ++count;
      }
    }
    return count == count_;
  }

 private:
  friend struct CounterFields;
  static constexpr unsigned kBins = 576;  // 0 .. 512, rounded up to whole words

  void take_out(Span* span) {
    const unsigned length = static_cast<unsigned>(span->large.pages);
    lists_[length].remove(span);
    if (lists_[length].empty()) occupied_.clear(length);
    --count_;
  }

  List<Span> lists_[kPagesPerBlock + 1];
  Bitmap<kBins> occupied_{};
  size_t count_ = 0;
};

}  // namespace loam
