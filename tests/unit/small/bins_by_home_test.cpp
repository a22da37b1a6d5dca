// Classes with several bins: which home takes from which bin, and where returned blocks go.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "os/fatal.h"
#include "random.h"
#include "small/small_heap.h"
#include "small/take_slots.h"

namespace loam {
namespace {

namespace fake = os::fake;
using Wait = SmallHeap::Wait;

unsigned bin_number_of(const void* block) {
  return span_at(reinterpret_cast<uintptr_t>(block))->bin_number();
}

class BinsByHome : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    pages->keep_falls();
  }

  std::vector<void*> take(unsigned size_class, size_t wanted, unsigned home) {
    std::vector<void*> out(wanted);
    size_t got = 0;
    while (got < wanted) {
      const size_t here = std::min<size_t>(64, wanted - got);
      const unsigned more = heap->take(
          {size_class, out.data() + got, static_cast<unsigned>(here), nullptr, ~0u, 0, home});
      if (more == 0) break;
      got += more;
    }
    out.resize(got);
    return out;
  }
  void give(unsigned size_class, const std::vector<void*>& blocks, Wait wait = Wait::kYes) {
    for (size_t i = 0; i < blocks.size(); i += SmallHeap::kMaxGive) {
      const size_t here = std::min<size_t>(SmallHeap::kMaxGive, blocks.size() - i);
      heap->give(size_class, blocks.data() + i, static_cast<unsigned>(here), wait);
    }
  }
  void use_bins(unsigned size_class, unsigned count) {
    while (heap->bins_in_use(size_class) < count) heap->use_more_bins(size_class);
  }
  [[nodiscard]] uint64_t fresh_bytes() const { return pages->stats().fresh_pages * kPageBytes; }
  [[nodiscard]] size_t used_bytes() const { return pages->stats().used.bytes(); }
  void expect_empty() {
    heap->compact();
    EXPECT_EQ(pages->stats().used.count, 0u);
    EXPECT_TRUE(heap->is_valid());
    EXPECT_TRUE(pages->is_valid());
  }
  std::string reports_of_giving(unsigned size_class, const std::vector<void*>& blocks) {
    set_corruption_policy(CorruptionPolicy::kReport);
    fake::take_errors();
    give(size_class, blocks);
    set_corruption_policy(CorruptionPolicy::kAbort);
    return fake::take_errors();
  }
  // `rounds` flushes of one block meet a held lock. Then blocks are taken.
  void be_refused(unsigned size_class, unsigned rounds) {
    const std::vector<void*> blocks = take(size_class, rounds, 0);
    heap->lock_all();
    std::thread([&] {
      for (void* block : blocks) heap->give(size_class, &block, 1, Wait::kNo);
    }).join();
    heap->unlock_all();
    give(size_class, take(size_class, 1, 0));
  }

  std::unique_ptr<PageHeap> pages = std::make_unique<PageHeap>();
  std::unique_ptr<SmallHeap> heap = std::make_unique<SmallHeap>(*pages);
};

TEST_F(BinsByHome, MoreAreUsedUpToAllThatThereAre) {
  const unsigned c = class_for(64);
  for (unsigned count = 1; count < MixedHeap::kHomes; count *= 2) {
    EXPECT_EQ(heap->bins_in_use(c), count);
    heap->use_more_bins(c);
  }
  heap->use_more_bins(c);
  EXPECT_EQ(heap->bins_in_use(c), MixedHeap::kHomes);
  EXPECT_EQ(heap->bins_in_use(class_for(80)), 1u) << "of that class only";
}

TEST_F(BinsByHome, AHomeTakesFromItsBinAndBlocksGoToTheirs) {
  for (const size_t bytes : {16, 64, 400, 5120, 32768}) {
    const unsigned c = class_for(bytes);
    use_bins(c, 4);
    std::vector<void*> all;
    for (unsigned home = 0; home < 8; ++home) {
      const std::vector<void*> its = take(c, 300, home);
      ASSERT_EQ(its.size(), 300u);
      // Some blocks may come from spans that other bins have partly used.
      EXPECT_GT(std::count_if(its.begin(), its.end(),
                              [&](void* block) { return bin_number_of(block) == home % 4; }),
                100)
          << bytes << " bytes, home " << home;
      all.insert(all.end(), its.begin(), its.end());
    }
    EXPECT_EQ(heap->stats(c).taken - heap->stats(c).given, 8 * 300u);
    EXPECT_TRUE(heap->is_valid());
    // One thread gives runs and single blocks in any order.
    test::Random random = test::seeded(static_cast<unsigned>(bytes));
    for (size_t i = all.size(); i-- > all.size() / 3;)
      std::swap(all[i], all[random.below(static_cast<uint32_t>(i + 1))]);
    fake::take_errors();
    give(c, all);
    EXPECT_EQ(fake::take_errors(), "");
    EXPECT_TRUE(heap->is_valid());
    EXPECT_EQ(heap->stats(c).taken, heap->stats(c).given);
  }
  expect_empty();
}

TEST_F(BinsByHome, ThreadsThatMeetGetMoreAndOthersDoNot) {
  const unsigned c = class_for(64);
  for (unsigned i = 0; i < 5000; ++i) give(c, take(c, 20, 0), Wait::kNo);
  EXPECT_EQ(heap->bins_in_use(c), 1u) << "one thread";
  // As many refusals among many more acquisitions: refusals are rare.
  for (unsigned i = 0; i < 8; ++i) {
    for (unsigned k = 0; k < 2000; ++k) give(c, take(c, 20, 0));
    be_refused(c, 40);
  }
  EXPECT_EQ(heap->bins_in_use(c), 1u) << "hardly ever";
  be_refused(c, 100);
  be_refused(c, 100);
  EXPECT_GE(heap->bins_in_use(c), 2u);
  expect_empty();
}

TEST_F(BinsByHome, WhatOthersHaveFreeComesBeforeAFreshPage) {
  const unsigned c = class_for(2048);  // too large for mixed spans
  use_bins(c, 2);
  std::vector<void*> its = take(c, 2000, 0), freed, kept;
  // Every third block stays, so no span is empty.
  for (size_t i = 0; i < its.size(); ++i) (i % 3 == 0 ? kept : freed).push_back(its[i]);
  give(c, freed);
  const uint64_t before = fresh_bytes();
  std::vector<void*> others = take(c, freed.size() * 9 / 10, 1);
  EXPECT_LE(fresh_bytes() - before, size_t{64} << 10);
  EXPECT_TRUE(heap->is_valid());
  give(c, others);
  give(c, kept);
  expect_empty();
}

TEST_F(BinsByHome, EmptySpansStayAndServeAnybodyBeforeAFreshPage) {
  const unsigned c = class_for(64), other = class_for(3072);
  use_bins(c, 2);
  const size_t blocks = 4 * SmallHeap::kEmptyBytes / 64;
  give(c, take(c, blocks, 0));
  EXPECT_GT(used_bytes(), SmallHeap::kEmptyBytes / 2) << "they are kept";
  EXPECT_LT(used_bytes(), SmallHeap::kEmptyBytes + (size_t{64} << 10)) << "but no more than that";
  EXPECT_TRUE(heap->is_valid());
  uint64_t before = fresh_bytes();
  const std::vector<void*> others = take(c, blocks, 1);
  EXPECT_EQ(fresh_bytes(), before) << "another home of the class";
  EXPECT_GT(std::count_if(others.begin(), others.end(),
                          [](void* block) { return bin_number_of(block) == 1; }),
            std::ptrdiff_t(blocks - 200));
  give(c, others);
  before = fresh_bytes();
  const std::vector<void*> larger = take(other, 3 * SmallHeap::kEmptyBytes / 3072, 5);
  EXPECT_LE(fresh_bytes() - before, size_t{64} << 10)
      << "another class: but what its spans leave between them";
  give(other, larger);
  give(c, take(c, blocks, 0));
  EXPECT_GT(used_bytes(), SmallHeap::kEmptyBytes / 2);
  heap->release_empty_spans();
  EXPECT_LT(used_bytes(), size_t{64} << 10) << "for large blocks";
  expect_empty();
}

TEST_F(BinsByHome, EmptySpansThatNobodyWantsGoBack) {
  const unsigned c = class_for(64);
  use_bins(c, 2);
  const std::vector<void*> one = take(c, 1, 0);
  give(c, take(c, SmallHeap::kEmptyBytes / 64, 1));
  EXPECT_TRUE(pages->hints().wants_ticks()) << "nobody would come";
  EXPECT_GT(used_bytes(), SmallHeap::kEmptyBytes / 2);
  for (unsigned ms = 0; ms < 4000; ms += 50) {
    fake::advance_ms(50);
    heap->tick();
  }
  EXPECT_LT(used_bytes(), size_t{256} << 10);
  EXPECT_TRUE(heap->is_valid());
  give(c, one);
  expect_empty();
}

TEST_F(BinsByHome, ADoubleFreeIsToldWhicheverBinItComesTo) {
  const unsigned c = class_for(64);
  use_bins(c, 2);
  const std::vector<void*> first = take(c, 100, 0), second = take(c, 100, 1);
  ASSERT_NE(bin_number_of(first[50]), bin_number_of(second[50]));
  give(c, {first[50], second[50]});
  const BinStats before = heap->stats(c);
  const std::string reports = reports_of_giving(c, {first[50], second[50], first[50]});
  EXPECT_NE(reports.find("double free"), std::string::npos) << reports;
  EXPECT_EQ(heap->stats(c).free_slots, before.free_slots) << "a misuse changes nothing";
  EXPECT_TRUE(heap->is_valid());
  std::vector<void*> rest;
  for (size_t i = 0; i < 100; ++i) {
    if (i != 50) rest.push_back(second[i]), rest.push_back(first[i]);
  }
  give(c, rest);
  EXPECT_TRUE(heap->is_valid());
  // The block's span was returned.
  heap->compact();
  EXPECT_NE(reports_of_giving(c, {first[10], second[10]}), "");
  expect_empty();
}

// Misuse: a free was queued, or began, before the block's span was returned and got another owner.
TEST_F(BinsByHome, AStrangersSpanIsLeftAlone) {
  const unsigned c = class_for(64);
  const SizeClassInfo& info = kSizeClasses[c];
  MixedHeap mixed(*pages);
  Bin bins[2];
  bins[1].set_number(1);
  std::vector<void*> its(info.slots / 2), others(info.slots / 2);
  ASSERT_EQ(test::take_slots(bins[0], *pages, c, its.data(), info.slots / 2), info.slots / 2u);
  ASSERT_EQ(test::take_slots(bins[1], *pages, c, others.data(), info.slots / 2), info.slots / 2u);
  set_corruption_policy(CorruptionPolicy::kReport);
  for (const bool alone : {true, false}) {
    for (unsigned b = 0; b < 2; ++b) {
      fake::take_errors();
      std::vector<void*>& wrong = b == 0 ? others : its;
      bins[b].give_locked(*pages, mixed, c, wrong.data(), alone ? 1 : 8);
      EXPECT_NE(fake::take_errors().find("free already"), std::string::npos);
      EXPECT_TRUE(bins[0].is_valid_locked(c) && bins[1].is_valid_locked(c));
      EXPECT_EQ(bins[b].stats_locked().free_slots, info.slots / 2u);
      EXPECT_EQ(bins[1 - b].stats_locked().free_slots, info.slots / 2u);
    }
  }
  set_corruption_policy(CorruptionPolicy::kAbort);
  bins[0].give_locked(*pages, mixed, c, its.data(), info.slots / 2);
  bins[1].give_locked(*pages, mixed, c, others.data(), info.slots / 2);
  for (Bin& bin : bins) {
    EXPECT_TRUE(bin.is_valid_locked(c));
    bin.compact_locked(*pages, c);
  }
  EXPECT_EQ(pages->stats().used.count, 0u);
}

TEST_F(BinsByHome, ASpanThatWaitedWholeIsItsTakers) {
  // The span is long enough to wait whole, and its pages name it (page_heap_spans.cpp).
  unsigned c = 1;
  while (kSizeClasses[c].pages < 16) ++c;
  use_bins(c, 2);
  const SizeClassInfo& info = kSizeClasses[c];
  const std::vector<void*> first = take(c, 4u * info.slots, 0);
  give(c, first);
  heap->release_empty_spans();
  const std::vector<void*> second = take(c, 4u * info.slots, 1);
  unsigned same = 0;
  for (void* block : second) {
    EXPECT_EQ(bin_number_of(block), 1u);
    same += std::find(first.begin(), first.end(), block) != first.end();
  }
  EXPECT_GT(same, 0u);
  give(c, second);
  EXPECT_TRUE(heap->is_valid());
  expect_empty();
}

TEST_F(BinsByHome, OnlyWhatIsAnothersIsLeftInTheStash) {
  const unsigned c = class_for(64);
  int consumer = 0, producer = 0;
  void* out[200] = {};
  EXPECT_FALSE(heap->wants_transfer(c, &consumer, out, 0)) << "nobody took";
  use_bins(c, 2);
  const unsigned got = heap->take({c, out, 200, &producer, ~0u, 0, 1});
  ASSERT_EQ(got, 200u);
  void* own[100];
  ASSERT_EQ(heap->take({c, own, 100, &consumer, ~0u, 0, 0}), 100u);
  ASSERT_EQ(bin_number_of(out[150]), 1u);
  ASSERT_EQ(bin_number_of(own[50]), 0u);
  EXPECT_TRUE(heap->wants_transfer(c, &consumer, out[150], 0));
  EXPECT_FALSE(heap->wants_transfer(c, &consumer, own[50], 0)) << "its own";
  EXPECT_FALSE(heap->wants_transfer(c, &producer, out[150], 1)) << "its own";
  int neighbour = 0;
  EXPECT_FALSE(heap->wants_transfer(c, &neighbour, own[50], 2)) << "its home's, whoever took it";
  heap->transfer(c, out, 200, &consumer);
  EXPECT_EQ(heap->stats(c).queued, 200u);
  EXPECT_TRUE(heap->is_valid());
  void* again[200];
  ASSERT_EQ(heap->take({c, again, 200, &producer, ~0u, 200, 1}), 200u);
  EXPECT_EQ(again[0], out[0]);
  heap->give(c, again, 200, Wait::kYes);
  heap->give(c, own, 100, Wait::kYes);
  expect_empty();
}

TEST_F(BinsByHome, ASlotOfTheClassComesFromAnyBin) {
  const unsigned c = class_for(2048);
  use_bins(c, 2);
  const std::vector<void*> its = take(c, 64, 0);
  give(c, {its[3], its[7]});
  const uint64_t before = fresh_bytes();
  void* slot = nullptr;
  ASSERT_EQ(heap->take_slots({.size_class = c, .out = &slot, .wanted = 1, .home = 1}), 1u);
  EXPECT_EQ(fresh_bytes(), before);
  give(c, {slot});
  std::vector<void*> rest = its;
  rest.erase(rest.begin() + 7);
  rest.erase(rest.begin() + 3);
  give(c, rest);
  expect_empty();
}

TEST_F(BinsByHome, ThreadsInPhasesLoseNothing) {
  constexpr unsigned kThreads = 4, kPlaces = 2000;
  const size_t sizes[] = {32, 64, 208, 400, 1024, 2048};
  std::atomic<void*> table[kPlaces] = {};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      test::Random random = test::seeded(t);
      std::vector<std::pair<unsigned, void*>> own;
      const auto home = [&](unsigned c, void* block) {
        class_at(block) == kMixedClass
            ? heap->give_mixed(&block, 1)
            : heap->give(c, &block, 1, random.chance(80) ? Wait::kNo : Wait::kYes);
      };
      for (const size_t bytes : sizes) {
        const unsigned c = class_for(bytes);
        if (t == 0) heap->use_more_bins(c);
        for (unsigned round = 0; round < 60; ++round) {
          void* out[100];
          const unsigned got = heap->take({c, out, random.between(1, 100), &own, ~0u, 100, t});
          for (unsigned i = 0; i < got; ++i) own.emplace_back(c, out[i]);
          if (round == 30 && t == 1) heap->use_more_bins(c);
        }
        if (t == 2) heap->release_empty_spans();
        // Nine in ten are freed in any order, some of them by another thread.
        for (size_t keep = own.size() / 10; own.size() > keep; own.pop_back()) {
          std::swap(own[random.below(static_cast<uint32_t>(own.size()))], own.back());
          home(own.back().first, own.back().second);
        }
        std::vector<void*> ends;
        void* out[100];
        const unsigned got = heap->take({c, out, 100, nullptr, ~0u, 0, t + 4});
        for (unsigned i = 0; i < got; ++i) {
          void* const other = table[random.below(kPlaces)].exchange(out[i]);
          if (other != nullptr) ends.push_back(other);
        }
        // Its span tells the class of each.
        for (void* block : ends) home(static_cast<unsigned>(class_at(block)), block);
      }
      for (const auto& [c, block] : own) home(c, block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake::take_errors(), "");
  EXPECT_TRUE(heap->is_valid());
  for (std::atomic<void*>& place : table) {
    void* block = place;
    if (block == nullptr) continue;
    class_at(block) == kMixedClass
        ? heap->give_mixed(&block, 1)
        : heap->give(static_cast<unsigned>(class_at(block)), &block, 1, Wait::kYes);
  }
  expect_empty();
}

}  // namespace
}  // namespace loam
