// Pages inside live spans whose slots are unwanted are purged by themselves. Pages that a class
// still uses stay.
#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "random.h"
#include "small/small_heap.h"

namespace loam {
namespace {

namespace fake = os::fake;

constexpr unsigned kMs = 50;  // the time between ticks, each of which is a look

class UnwantedSlots : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    pages->keep_falls();
  }
  void TearDown() override {
    EXPECT_TRUE(heap->is_valid());
    for (const auto& [size_class, block] : live) give(size_class, {block});
    heap->compact();
    pages->purge_all();
    EXPECT_EQ(fake::resident_bytes(), 0u);
    EXPECT_TRUE(pages->is_valid());
  }

  std::vector<void*> take(unsigned size_class, size_t wanted) {
    std::vector<void*> out;
    while (out.size() < wanted) {
      void* some[64];
      const unsigned got = heap->take(
          {size_class, some, static_cast<unsigned>(std::min<size_t>(64, wanted - out.size()))});
      for (unsigned i = 0; i < got; ++i)
        fake::touch(reinterpret_cast<uintptr_t>(some[i]), kSizeClasses[size_class].bytes);
      out.insert(out.end(), some, some + got);
    }
    return out;
  }
  void give(unsigned size_class, const std::vector<void*>& blocks) {
    for (size_t i = 0; i < blocks.size(); i += 64) {
      const size_t here = std::min<size_t>(64, blocks.size() - i);
      heap->give(size_class, blocks.data() + i, static_cast<unsigned>(here), SmallHeap::Wait::kYes);
    }
  }
  // Keeps one block in ten, at random. Returns how many slots are free then.
  size_t thin(unsigned size_class, size_t blocks) {
    std::vector<void*> all = take(size_class, blocks), gone;
    for (void* block : all) {
      if (random.below(10) == 0) {
        live.emplace_back(size_class, block);
      } else {
        gone.push_back(block);
      }
    }
    give(size_class, gone);
    return gone.size();
  }
  void pass(unsigned ms) {
    for (unsigned i = 0; i < ms / kMs; ++i) {
      fake::advance_ms(kMs);
      heap->tick();
    }
  }
  size_t unbacked(unsigned size_class) { return heap->stats(size_class).unbacked_pages; }

  test::Random random = test::seeded(1);
  std::unique_ptr<PageHeap> pages = std::make_unique<PageHeap>();
  std::unique_ptr<SmallHeap> heap = std::make_unique<SmallHeap>(*pages);
  std::vector<std::pair<unsigned, void*>> live;
};

TEST_F(UnwantedSlots, TheirPagesGoBackAfterASecondAsByCompact) {
  for (const size_t bytes : {512, 2048, 4096, 5120, 20480, 32768}) {
    const unsigned c = class_for(bytes);
    thin(c, (size_t{4} << 20) / bytes);
    EXPECT_TRUE(pages->hints().wants_ticks()) << bytes << " bytes: nobody would come";
    const size_t unused = unbacked(c);  // at the end of the last span
    EXPECT_LT(unused, kSizeClasses[c].pages);
    pass(900);
    EXPECT_EQ(unbacked(c), unused) << bytes << " bytes: too early";
    pass(3000);
    EXPECT_GT(unbacked(c), unused) << bytes << " bytes";
    const size_t here = unbacked(c);
    const uint64_t calls = fake::calls(fake::Call::kPurge);
    pass(3000);
    EXPECT_EQ(fake::calls(fake::Call::kPurge), calls) << bytes << " bytes: it goes on for nothing";
    EXPECT_EQ(heap->compact().count, 0u) << bytes << " bytes: something is left";
    EXPECT_EQ(unbacked(c), here);
    ASSERT_TRUE(heap->is_valid());
  }
}

TEST_F(UnwantedSlots, NobodyHasToComeOnceTheyWent) {
  thin(class_for(4096), 2000);
  pass(4000);
  pages->purge_all();
  pages->tick();
  EXPECT_FALSE(pages->hints().wants_ticks());
  thin(class_for(4096), 2000);
  EXPECT_TRUE(pages->hints().wants_ticks()) << "there is more now";
}

TEST_F(UnwantedSlots, NobodyHasToComeForWhatLiveBlocksHold) {
  const unsigned c = class_for(512);  // eight blocks a page: most pages have a live one
  thin(c, 40'000);
  pass(6000);
  const BinStats stats = heap->stats(c);
  EXPECT_GT(stats.free_slots * size_t{512}, Pages(2 * stats.unbacked_pages).bytes())
      << "nearly all of it went";
  pages->purge_all();
  pages->tick();
  EXPECT_FALSE(pages->hints().wants_ticks());
}

TEST_F(UnwantedSlots, AFewAreNotWorthATick) {
  thin(class_for(4096), 32);
  EXPECT_FALSE(pages->hints().wants_ticks());
}

TEST_F(UnwantedSlots, WhatAClassUsesNowAndThenStays) {
  const unsigned c = class_for(4096);
  const size_t free = thin(c, 2000);
  for (int i = 0; i < 20; ++i) {
    give(c, take(c, free));
    pass(500);
    ASSERT_EQ(unbacked(c), 0u) << i;
  }
}

TEST_F(UnwantedSlots, WhatItUsesAPartOfKeepsThatPart) {
  const unsigned c = class_for(4096);
  thin(c, 2000);
  const size_t free = heap->stats(c).free_slots;
  for (int i = 0; i < 20; ++i) {
    give(c, take(c, free / 2));
    pass(500);
  }
  EXPECT_LE(unbacked(c), free - free / 2);
  EXPECT_GT(unbacked(c), free / 4);
  // The emptiest spans were purged first, so the slots that are still used did not fault.
  const size_t before = unbacked(c);
  give(c, take(c, free / 2));
  EXPECT_GT(unbacked(c), before / 2);
}

TEST_F(UnwantedSlots, EachTickDoesABoundedPart) {
  const unsigned c = class_for(8192);
  thin(c, 20'000);
  pass(1000);
  uint64_t calls = fake::calls(fake::Call::kPurge);
  unsigned busy = 0;
  for (unsigned i = 0; i < 400; ++i) {
    pass(kMs);
    const uint64_t now = fake::calls(fake::Call::kPurge);
    // Several runs of pages in a span may be purged.
    ASSERT_LE(now - calls, 64u * 4);
    busy += now != calls;
    calls = now;
  }
  EXPECT_GT(busy, 10u);
  EXPECT_EQ(heap->compact().count, 0u);
}

TEST_F(UnwantedSlots, SeveralClassesShareTheTicks) {
  heap->keep_spans_pure();  // or the first ones would lend the others their pages
  const unsigned classes[] = {class_for(3072), class_for(4096), class_for(16384)};
  for (const unsigned c : classes) thin(c, (size_t{8} << 20) / kSizeClasses[c].bytes);
  pass(6000);
  for (const unsigned c : classes) EXPECT_GT(unbacked(c), 0u) << kSizeClasses[c].bytes;
  EXPECT_EQ(heap->compact().count, 0u);
}

TEST_F(UnwantedSlots, TheyAreAsGoodAsNewWhenTheyAreWantedAgain) {
  const unsigned c = class_for(4096);
  const size_t free = thin(c, 2000);
  pass(4000);
  ASSERT_GT(unbacked(c), 0u);
  std::vector<void*> again = take(c, free);
  EXPECT_EQ(unbacked(c), 0u);
  give(c, again);
  pass(4000);
  EXPECT_GT(unbacked(c), 0u) << "and once more";
}

}  // namespace
}  // namespace loam
