// A bin beside a reference model that knows which slots are out and how full each span is.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "random.h"
#include "small/bin.h"
#include "small/partial_span.h"

namespace loam::test {

namespace fake = os::fake;

class BinModel {
 public:
  explicit BinModel(unsigned size_class)
      : size_class_(size_class),
        pages_(std::make_unique<PageHeap>()),
        bin_(std::make_unique<Bin>()) {}

  [[nodiscard]] const SizeClassInfo& info() const { return kSizeClasses[size_class_]; }
  Bin& bin() { return *bin_; }
  PageHeap& pages() { return *pages_; }
  [[nodiscard]] const std::vector<void*>& live() const { return live_; }
  [[nodiscard]] const std::map<Span*, unsigned>& used() const { return used_; }

  /// Takes up to `wanted` slots and checks each one. Writes to each if `write`.
  unsigned take(unsigned wanted, bool write = false) {
    return take(wanted, write, Bin::From::kAnywhere);
  }
  /// The same without fresh pages, and also from spans that are shorter than those of the class.
  unsigned take_backed(unsigned wanted) { return take(wanted, true, Bin::From::kShortRuns); }
  unsigned take(unsigned wanted, bool write, Bin::From from) {
    std::vector<void*> out(wanted, nullptr);
    unsigned got;
    {
      Lock lock(bin_->mutex());
      Refill refill{size_class_, out.data(), wanted};
      bin_->take_locked(*pages_, refill, from);
      got = refill.finish();
    }
    EXPECT_LE(got, wanted);
    for (unsigned i = got; i-- > 0;) enter(out[i], write);  // the last one was taken first
    return got;
  }

  void give(const std::vector<void*>& pointers) {
    std::vector<Span*> spans;
    for (void* p : pointers) spans.push_back(span_at(number(p)));
    Lock lock(bin_->mutex());
    bin_->give_locked(*pages_, mixed_, size_class_, pointers.data(),
                      static_cast<unsigned>(pointers.size()));
  }

  /// Gives live slots back and forgets them.
  void give_live(const std::vector<void*>& pointers) {
    for (void* p : pointers) {
      expect_content(p);
      Span* span = span_at(number(p));
      if (--used_.at(span) == 0) used_.erase(span);
      written_.erase(p);
      set_.erase(p);
    }
    give(pointers);
    live_.erase(
        std::remove_if(live_.begin(), live_.end(), [&](void* p) { return set_.count(p) == 0; }),
        live_.end());
  }

  std::vector<void*> pick(Random& random, size_t count) {
    std::vector<void*> chosen;
    for (size_t i = 0; i < count && i < live_.size(); ++i) {
      std::swap(live_[i], live_[i + random.below(live_.size() - i)]);
      chosen.push_back(live_[i]);
    }
    return chosen;
  }

  /// Lets the bin keep so many empty spans.
  void keep_empty(unsigned spans) {
    Lock lock(bin_->mutex());
    bin_->keep_empty_locked(spans * Pages(info().pages).bytes(), size_class_);
    kept_ = spans;
  }

  Pages compact() {
    Lock lock(bin_->mutex());
    return bin_->compact_locked(*pages_, size_class_);
  }

  Pages lend(Pages wanted) {
    used_limits_hold_ = false;  // the shares of partial spans are those of their own slots
    Lock lock(bin_->mutex());
    return bin_->lend_locked(*pages_, mixed_, size_class_, wanted);
  }

  BinStats stats() {
    Lock lock(bin_->mutex());
    return bin_->stats_locked();
  }

  void check() {
    {
      Lock lock(bin_->mutex());
      ASSERT_TRUE(bin_->is_valid_locked(size_class_));
    }
    const BinStats s = stats();
    ASSERT_EQ(s.spans * info().slots - s.absent_slots - s.free_slots, live_.size());
    ASSERT_EQ(s.taken - s.given, live_.size());
    ASSERT_GE(s.spans, used_.size());
    ASSERT_LE(s.spans, used_.size() + kept_) << "an empty span stayed";
    ASSERT_TRUE(pages_->is_valid());
    ASSERT_EQ(pages_->stats().used.count, s.spans * info().pages - s.absent_pages + others_.count);
  }

  /// Pages that the test itself took from pages().
  void count_others(Pages pages) { others_ = pages; }

  void check_contents() {
    for (void* p : live_) expect_content(p);
  }

 private:
  static uintptr_t number(const void* p) { return reinterpret_cast<uintptr_t>(p); }

  void enter(void* p, bool write) {
    EXPECT_EQ(class_at(p), size_class_);
    Span* span = span_at(number(p));
    ASSERT_NE(span, nullptr);
    const size_t offset = number(p) - span_base(span);
    EXPECT_EQ(offset % info().bytes, 0u);
    EXPECT_LE(offset + info().bytes, Pages(info().pages).bytes());
    EXPECT_TRUE(set_.insert(p).second) << "handed out twice";
    if (is_partial(span)) used_limits_hold_ = false;
    // The fullest span comes first: no span with room is fuller than the chosen one by more than a
    // list's width.
    const unsigned chosen = used_.count(span) != 0 ? used_[span] : 0;
    for (const auto& [other, count] : used_) {
      if (!used_limits_hold_ || count == info().slots || other == span) continue;
      EXPECT_LE((count - std::min(count, chosen)) * Bin::kLists, info().slots + Bin::kLists)
          << chosen << " used where another span has " << count;
    }
    ++used_[span];
    live_.push_back(p);
    if (!write) return;
    fake::touch(number(p), info().bytes);
    written_.insert(p);
  }

  void expect_content(void* p) {
    if (written_.count(p) == 0) return;
    EXPECT_EQ(fake::written_bytes(number(p), info().bytes), info().bytes)
        << "a purge took a live slot";
  }

  unsigned size_class_;
  std::unique_ptr<PageHeap> pages_;
  MixedHeap mixed_{*pages_};
  std::unique_ptr<Bin> bin_;
  std::vector<void*> live_;
  std::set<void*> set_, written_;
  std::map<Span*, unsigned> used_;
  Pages others_{};
  unsigned kept_ = 0;  // the most empty spans that the bin keeps
  bool used_limits_hold_ = true;
};

}  // namespace loam::test
