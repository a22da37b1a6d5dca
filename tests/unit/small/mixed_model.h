// Bins of all classes and the mixed spans made from them, beside a list of all allocated blocks.
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
#include "small/mixed_heap.h"
#include "small/take_slots.h"

namespace loam::test {

inline uintptr_t number(const void* p) { return reinterpret_cast<uintptr_t>(p); }

// One past the last class whose blocks mixed spans serve.
constexpr unsigned served_classes() {
  unsigned c = 1;
  while (c < kSizeClassCount && kSizeClasses[c].bytes <= MixedHeap::kLargestBlock) ++c;
  return c;
}

/// Takes up to `wanted` blocks of the class from mixed spans into `out`.
inline unsigned take_blocks(MixedHeap& mixed, unsigned c, void** out, unsigned wanted,
                            MixedHeap::From from = MixedHeap::From::kSpans, unsigned home = 0) {
  Refill refill{.size_class = c, .out = out, .wanted = wanted, .home = home};
  mixed.take(refill, from);
  return refill.finish();
}
inline unsigned take_others_blocks(MixedHeap& mixed, unsigned c, void** out, unsigned wanted,
                                   unsigned home) {
  Refill refill{.size_class = c, .out = out, .wanted = wanted, .home = home};
  mixed.take_from_others(refill);
  return refill.finish();
}

class MixedModel {
 public:
  static constexpr unsigned kClasses = served_classes();

  MixedHeap& mixed() { return *mixed_; }
  PageHeap& pages() { return *pages_; }
  Bin& bin(unsigned c) { return bins_[c]; }
  [[nodiscard]] size_t size() const { return order_.size(); }

  unsigned take_from_bin(unsigned c, unsigned wanted) {
    std::vector<void*> out(wanted);
    unsigned got;
    {
      Lock lock(bins_[c].mutex());
      got = take_slots(bins_[c], *pages_, c, out.data(), wanted);
    }
    out.resize(got);
    for (void* block : out) enter(block, c);
    return got;
  }

  std::vector<void*> take_mixed(unsigned c, unsigned wanted, unsigned home = 0) {
    std::vector<void*> out(wanted, nullptr);
    unsigned got = take_blocks(*mixed_, c, out.data(), wanted, MixedHeap::From::kSpans, home);
    if (got == 0) got = take_others_blocks(*mixed_, c, out.data(), wanted, home);
    EXPECT_LE(got, wanted);
    out.resize(got);
    for (void* block : out) {
      EXPECT_EQ(class_at(block), kMixedClass);
      enter(block, c);
    }
    return out;
  }

  unsigned donate(unsigned donor, unsigned for_class, size_t wanted_bytes, unsigned home = 0) {
    Lock lock(bins_[donor].mutex());
    return bins_[donor].donate_locked(*mixed_, donor, kSizeClasses[for_class].bytes, wanted_bytes,
                                      home);
  }

  /// The class with the most bytes in free slots.
  unsigned sparsest() {
    size_t most = 0;
    unsigned donor = 1;
    for (unsigned c = 1; c < kClasses; ++c) {
      Lock lock(bins_[c].mutex());
      const size_t bytes = bins_[c].stats_locked().free_slots * kSizeClasses[c].bytes;
      if (bytes > most) {
        most = bytes;
        donor = c;
      }
    }
    return donor;
  }

  void* random_block(Random& random) {
    std::swap(order_[random.below(order_.size())], order_.back());
    return order_.back();
  }

  /// `by_class`: a block of a mixed span is returned as if it was freed before the conversion.
  void give(void* block, bool by_class) {
    const auto found = live_.find(number(block));
    const unsigned c = found->second;
    const size_t bytes = kSizeClasses[c].bytes;
    EXPECT_EQ(os::fake::written_bytes(number(block), bytes), bytes) << "a purge took a live block";
    if (class_at(block) == kMixedClass) {
      EXPECT_EQ(mixed_->block_bytes(number(block)), bytes);
      EXPECT_EQ(mixed_->block_bytes(number(block) + kGranuleBytes), next_block_bytes(found));
    } else {
      EXPECT_EQ(mixed_->block_bytes(number(block)), 0u);
    }
    live_.erase(found);
    std::swap(*std::find(order_.rbegin(), order_.rend(), block), order_.back());
    order_.pop_back();
    --count_[c];
    if (class_at(block) == kMixedClass && !by_class) return mixed_->give(&block, 1);
    Lock lock(bins_[c].mutex());
    bins_[c].give_locked(*pages_, *mixed_, c, &block, 1);
  }

  void thin(Random& random, size_t keep) {
    while (order_.size() > keep) give(random_block(random), random.chance(20));
  }

  /// Fills so many spans of the class, and frees all blocks except one in `share`. Then opens the
  /// class's spans that have room for a block of `for_class`.
  void open_sparse_spans(Random& random, unsigned c, unsigned spans, size_t share,
                         unsigned for_class) {
    take_from_bin(c, spans * kSizeClasses[c].slots);
    thin(random, size() / share);
    while (donate(c, for_class, 1 << 20) != 0) continue;
  }

  /// Returns blocks of mixed spans in one call, as a magazine does: a span may occur more than
  /// once.
  void give_together(Random& random, unsigned most) {
    std::vector<void*> blocks;
    for (; most != 0 && !order_.empty(); --most) {
      void* block = random_block(random);
      if (class_at(block) != kMixedClass) continue;
      const size_t bytes = kSizeClasses[live_.at(number(block))].bytes;
      EXPECT_EQ(os::fake::written_bytes(number(block), bytes), bytes)
          << "a purge took a live block";
      order_.pop_back();
      blocks.push_back(block);
    }
    for (void* block : blocks) {
      const auto found = live_.find(number(block));
      --count_[found->second];
      live_.erase(found);
    }
    mixed_->give(blocks.data(), unsigned(blocks.size()));
  }

  void check() {
    size_t mixed_bytes = 0, pages = 0;
    std::vector<size_t> mixed_blocks(kClasses);
    for (const auto& [address, c] : live_) {
      if (class_at(reinterpret_cast<void*>(address)) != kMixedClass) continue;
      mixed_bytes += kSizeClasses[c].bytes;
      ++mixed_blocks[c];
    }
    ASSERT_TRUE(mixed_->is_valid());
    const MixedStats m = mixed_->stats();
    ASSERT_EQ(m.span_bytes - m.free_bytes, mixed_bytes);
    for (unsigned c = 1; c < kClasses; ++c) {
      ASSERT_EQ(mixed_->blocks(c), mixed_blocks[c]) << "class " << c;
      Lock lock(bins_[c].mutex());
      ASSERT_TRUE(bins_[c].is_valid_locked(c)) << "class " << c;
      const BinStats s = bins_[c].stats_locked();
      const SizeClassInfo& info = kSizeClasses[c];
      ASSERT_EQ(s.spans * info.slots - s.free_slots + mixed_blocks[c], count_[c]);
      pages += s.spans * info.pages;
    }
    ASSERT_TRUE(pages_->is_valid());
    ASSERT_EQ(pages_->stats().used.bytes(), Pages(pages).bytes() + m.span_bytes);
  }

  [[nodiscard]] Pages pages_with_a_mixed_block() const {
    std::set<uintptr_t> pages;
    for (const auto& [address, c] : live_) {
      if (class_at(reinterpret_cast<void*>(address)) != kMixedClass) continue;
      const uintptr_t last = address + kSizeClasses[c].bytes - 1;
      for (uintptr_t page = address >> kPageShift; page <= last >> kPageShift; ++page)
        pages.insert(page);
    }
    return Pages(pages.size());
  }

  void expect_empty_after_the_last_free(Random& random) {
    thin(random, 0);
    check();
    EXPECT_EQ(mixed_->stats().spans, 0u) << "a mixed span goes back with its last block";
    EXPECT_EQ(mixed_->stats().unbacked_pages, 0u);
    for (unsigned c = 1; c < kClasses; ++c) {
      Lock lock(bins_[c].mutex());
      static_cast<void>(bins_[c].compact_locked(*pages_, c));
    }
    EXPECT_EQ(pages_->stats().used.count, 0u);
    pages_->purge_all();
    EXPECT_EQ(os::fake::resident_bytes(), 0u);
  }

 private:
  void enter(void* block, unsigned c) {
    const uintptr_t address = number(block);
    const size_t bytes = kSizeClasses[c].bytes;
    const auto after = live_.lower_bound(address);
    if (after != live_.end()) {
      ASSERT_LE(address + bytes, after->first) << "blocks overlap";
    }
    if (after != live_.begin()) {
      const auto before = std::prev(after);
      ASSERT_LE(before->first + kSizeClasses[before->second].bytes, address) << "blocks overlap";
    }
    ASSERT_EQ(span_at(address), span_at(address + bytes - 1)) << "a block leaves its span";
    os::fake::touch(address, bytes);
    live_[address] = c;
    order_.push_back(block);
    ++count_[c];
  }
  // The expected result of block_bytes() for the granule behind the first one of a block.
  size_t next_block_bytes(std::map<uintptr_t, unsigned>::const_iterator found) const {
    const auto next = std::next(found);
    if (next == live_.end() || next->first != found->first + kGranuleBytes) return 0;
    const bool is_mixed = class_at(reinterpret_cast<void*>(next->first)) == kMixedClass;
    return is_mixed ? kSizeClasses[next->second].bytes : 0;
  }

  std::unique_ptr<PageHeap> pages_ = std::make_unique<PageHeap>();
  std::unique_ptr<MixedHeap> mixed_ = std::make_unique<MixedHeap>(*pages_);
  std::unique_ptr<Bin[]> bins_ = std::make_unique<Bin[]>(kSizeClassCount);
  std::map<uintptr_t, unsigned> live_;  // address -> class
  std::vector<void*> order_;
  size_t count_[kSizeClassCount] = {};
};

}  // namespace loam::test
