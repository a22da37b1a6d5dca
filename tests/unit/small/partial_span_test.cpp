// Spans that do not own all of their pages: sparse ones that lend pages, and short ones.
#include <algorithm>
#include <iterator>
#include <tuple>

#include "fake_system/fake.h"
#include "os/fatal.h"
#include "small/bin_model.h"
#include "small/small_heap.h"

namespace loam {
namespace {

namespace fake = os::fake;
using test::BinModel;
using test::Random;

class PartialSpans : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override { fake::reset(); }
  unsigned size_class() const { return class_for(GetParam()); }
};
// If mixed spans serve the slots' class, spans that lend pages become mixed.
class LendingSpans : public PartialSpans {};

TEST_P(LendingSpans, LendExactlyThePagesThatNoUsedSlotTouches) {
  Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  BinModel model(size_class());
  model.pages().keep_falls();
  model.take(30 * model.info().slots, true);
  model.give_live(model.pick(random, model.live().size() * 9 / 10));
  model.check();
  const size_t spans = model.stats().spans;
  Pages lent;
  for (Pages more(1); more != Pages(0); lent += more) {
    more = model.lend(Pages(8));
    model.check();
    ASSERT_FALSE(HasFailure());
  }
  // Pages of spans that are three quarters used stay, because the class will soon want them.
  EXPECT_GT(lent, Pages(0));
  EXPECT_EQ(model.stats().spans, spans);
  EXPECT_EQ(model.stats().absent_pages, lent.count) << "all of them were backed";
  model.check_contents();
  // Any request may take these pages, and they are still backed.
  Pages others;
  std::vector<Span*> runs;
  while (Span* run = model.pages().allocate_span({Pages(1), kNoClass, kNoClass, 0},
                                                 PageHeap::Source::kBacked)) {
    runs.push_back(run);
    others += Pages(1);
  }
  EXPECT_GE(others, lent);
  model.count_others(others);
  model.check();
  for (Span* run : runs) fake::touch(span_base(run), kPageBytes);
  model.check_contents();
  // The remaining slots are still used.
  const size_t free = model.stats().free_slots;
  EXPECT_EQ(model.take_backed(static_cast<unsigned>(free) + 1), free);
  model.check();
  model.give_live(model.pick(random, model.live().size()));
  for (Span* run : runs) model.pages().free(run);
  model.count_others(Pages(0));
  model.compact();
  model.check();
  EXPECT_EQ(model.stats().absent_slots, 0u);
  EXPECT_EQ(model.stats().absent_pages, 0u);
  EXPECT_EQ(model.pages().stats().used.count, 0u);
}

TEST_P(LendingSpans, PagesThatWentBackToTheSystemAreLentAsSuch) {
  Random random = test::seeded(4);
  LOAM_TRACE_SEED(random);
  BinModel model(size_class());
  model.take(30 * model.info().slots, true);
  model.give_live(model.pick(random, model.live().size() / 2));
  model.compact();  // some pages of the spans go
  model.give_live(model.pick(random, model.live().size() * 3 / 4));
  model.pages().purge_all();
  const size_t unbacked = model.stats().unbacked_pages;
  Pages lent;
  for (Pages more(1); more != Pages(0); lent += more) more = model.lend(Pages(8));
  model.check();
  const BinStats stats = model.stats();
  // Beyond the lent pages, the spans gave up only pages that were not backed.
  EXPECT_EQ(stats.absent_pages - lent.count, unbacked - stats.unbacked_pages);
  EXPECT_EQ(model.pages().stats().dirty, lent);
  model.check_contents();
}

TEST_P(PartialSpans, ShortOnesTakeTheRunsThatAreTooShort) {
  BinModel model(size_class());
  const SizeClassInfo& info = model.info();
  const unsigned one = static_cast<unsigned>((info.bytes + kPageBytes - 1) >> kPageShift);
  if (one == info.pages) GTEST_SKIP() << "its spans hold a slot";
  // Backed runs of each length up to a span's, and of one page less than a slot. No two are
  // neighbours.
  std::vector<Span*> runs;
  for (unsigned pages = 1; pages < info.pages; ++pages) {
    for (const unsigned length : {pages, 1u}) {
      Span* const run = model.pages().allocate_span({Pages(length), kNoClass, kNoClass, 0},
                                                    PageHeap::Source::kAny);
      ASSERT_NE(run, nullptr);
      runs.push_back(run);
    }
  }
  Pages others;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i % 2 == 0) {
      model.pages().free(runs[i]);
    } else {
      others += Pages(1);
    }
  }
  model.count_others(others);
  const uint64_t fresh = model.pages().stats().fresh_pages;
  const unsigned got = model.take_backed(1000);
  model.check();
  EXPECT_GT(got, 0u);
  EXPECT_EQ(model.pages().stats().fresh_pages, fresh);
  // No remaining run holds a slot.
  EXPECT_EQ(
      model.pages().allocate_span({Pages(one), kNoClass, kNoClass, 0}, PageHeap::Source::kBacked),
      nullptr);
  model.check_contents();
  Random random = test::seeded(2);
  while (!model.live().empty()) {
    model.give_live(model.pick(random, 7));
    model.check();
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(model.stats().spans, 0u) << "none is kept";
}

TEST_P(PartialSpans, RandomUseAgreesWithTheModel) {
  Random random = test::seeded(GetParam());
  LOAM_TRACE_SEED(random);
  BinModel model(size_class());
  for (int step = 0; step < 1000; ++step) {
    const bool grow = step / 150 % 2 == 0;
    if (model.live().empty() || random.chance(grow ? 60 : 35)) {
      const unsigned wanted = random.magnitude(64);
      const unsigned got = model.take_backed(wanted);
      if (got != wanted) {
        ASSERT_EQ(model.take(wanted - got, true), wanted - got);
      }
    } else {
      model.give_live(model.pick(random, random.magnitude(64)));
    }
    if (!MixedHeap::serves(size_class()) && random.chance(20))
      model.lend(Pages(random.magnitude(64)));
    if (random.chance(3)) model.compact();
    model.check();
    ASSERT_FALSE(HasFailure()) << "step " << step;
  }
  model.check_contents();
  model.give_live(model.pick(random, model.live().size()));
  model.compact();
  model.check();
  EXPECT_EQ(model.pages().stats().used.count, 0u);
}

INSTANTIATE_TEST_SUITE_P(Classes, PartialSpans,
                         testing::Values(160, 576, 1024, 1152, 2048, 4608, 16384, 20480, 32768));
INSTANTIATE_TEST_SUITE_P(Classes, LendingSpans,
                         testing::Values(8704, 9216, 10752, 11776, 16384, 20480, 32768));

class PartialSpansMisuse : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { set_corruption_policy(CorruptionPolicy::kAbort); }

  void expect_report(void* pointer, const char* what) {
    set_corruption_policy(CorruptionPolicy::kReport);
    fake::take_errors();
    const BinStats before = model.stats();
    model.give({pointer});
    EXPECT_NE(fake::take_errors().find(what), std::string::npos) << what;
    EXPECT_EQ(model.stats().free_slots, before.free_slots);
    EXPECT_EQ(model.stats().given, before.given);
    model.check();
  }

  BinModel model{class_for(9216)};  // slots that begin in one page and end in another
};

TEST_F(PartialSpansMisuse, AFreeOfAnAbsentSlotIsReportedAndDropped) {
  model.take(model.info().slots, true);
  const std::vector<void*> slots = model.live();
  // The first slot stays, and the page in which the second one begins.
  model.give_live({slots.begin() + 1, slots.end()});
  ASSERT_GT(model.lend(Pages(1)), Pages(0));
  ASSERT_EQ(span_at(reinterpret_cast<uintptr_t>(slots[1])),
            span_at(reinterpret_cast<uintptr_t>(slots[0])));
  expect_report(slots[1], "double free");
  expect_report(static_cast<char*>(slots[0]) + 16, "free of a pointer into the middle of a block");
  expect_report(slots[3], "free of a block that is free already");  // no span owns its page
  model.give_live({slots[0]});
  EXPECT_EQ(model.stats().spans, 0u);
  expect_report(slots[0], "free of a block that is free already");
}

TEST_F(PartialSpansMisuse, ABlockThatComesTwiceInTheBatchThatEmptiesItsSpan) {
  model.take(model.info().slots, true);
  void* const last = model.live()[0];
  model.give_live({model.live().begin() + 1, model.live().end()});
  ASSERT_GT(model.lend(Pages(1)), Pages(0));
  set_corruption_policy(CorruptionPolicy::kReport);
  fake::take_errors();
  model.give({last, last});
  EXPECT_NE(fake::take_errors().find("double free"), std::string::npos);
  EXPECT_EQ(model.stats().spans, 0u);
  EXPECT_EQ(model.stats().free_slots, 0u);
  EXPECT_EQ(model.pages().stats().used.count, 0u);
}

/// Frees nine large blocks in ten of one size at random. Then takes other ones.
class LargePhaseChange : public testing::Test {
 protected:
  static constexpr size_t kBytes = size_t{32} << 20;

  void SetUp() override {
    fake::reset();
    pages->keep_falls();
  }
  void begin_anew() {
    pages = std::make_unique<PageHeap>();
    heap = std::make_unique<SmallHeap>(*pages);
    pages->keep_falls();
  }
  void TearDown() override {
    give(first, kept);
    heap->compact();
    EXPECT_EQ(pages->stats().used.count, 0u);
    EXPECT_TRUE(heap->is_valid());
    EXPECT_TRUE(pages->is_valid());
  }

  std::vector<void*> take(unsigned size_class, size_t wanted) {
    std::vector<void*> out(wanted);
    size_t got = 0;
    for (unsigned more = 1; more != 0 && got < wanted; got += more) {
      const size_t here = std::min<size_t>(wanted - got, 16);
      more = heap->take({size_class, out.data() + got, static_cast<unsigned>(here)});
    }
    out.resize(got);
    for (void* block : out) {
      fake::touch(reinterpret_cast<uintptr_t>(block), kSizeClasses[size_class].bytes);
    }
    return out;
  }
  void give(unsigned size_class, const std::vector<void*>& blocks) {
    for (size_t i = 0; i < blocks.size(); i += 64) {
      const size_t here = std::min<size_t>(blocks.size() - i, 64);
      heap->give(size_class, blocks.data() + i, static_cast<unsigned>(here), SmallHeap::Wait::kYes);
    }
  }
  /// Blocks of the class, whatever spans they were cut from.
  void give_any(unsigned size_class, const std::vector<void*>& blocks) {
    for (void* block : blocks)
      class_at(block) == kMixedClass ? heap->give_mixed(&block, 1) : give(size_class, {block});
  }
  void fill_and_thin(size_t bytes) {
    first = class_for(bytes);
    kept = take(first, kBytes / bytes);
    for (void*& block : kept) std::swap(block, kept[random.below(kept.size())]);
    const std::vector<void*> freed(kept.begin() + static_cast<ptrdiff_t>(kept.size() / 10),
                                   kept.end());
    kept.resize(kept.size() / 10);
    give(first, freed);
  }
  [[nodiscard]] uint64_t fresh_bytes() const { return pages->stats().fresh_pages * kPageBytes; }

  Random random = test::seeded(3);
  std::unique_ptr<PageHeap> pages = std::make_unique<PageHeap>();
  std::unique_ptr<SmallHeap> heap = std::make_unique<SmallHeap>(*pages);
  std::vector<void*> kept;
  unsigned first = 0;
};

TEST_F(LargePhaseChange, TheNextSizeMovesIntoTheFreePages) {
  LOAM_TRACE_SEED(random);
  size_t lent = 0;
  // The share is larger if a block has fewer pages and the spans' earlier blocks had more. A slot
  // that does not begin at a page needs one page more.
  for (const auto& [from, to, share] : {std::tuple{16384, 4096, 75},
                                        {16384, 20416, 69},
                                        {32768, 12224, 75},
                                        {8192, 2048, 75},
                                        {8192, 1000, 75},
                                        {3072, 1536, 40}}) {
    fill_and_thin(size_t(from));
    const uint64_t before = fresh_bytes();
    const unsigned c = class_for(size_t(to));
    const std::vector<void*> second = take(c, kBytes * size_t(share) / 100 / size_t(to));
    EXPECT_LE(fresh_bytes() - before, kBytes / 10)
        << share << " % of the memory as blocks of " << to << " bytes after " << from;
    lent += heap->stats(first).absent_pages;
    EXPECT_TRUE(heap->is_valid());
    give(first, kept);
    kept.clear();
    give_any(c, second);
    EXPECT_EQ(heap->stats(first).absent_pages, 0u);
    ASSERT_FALSE(HasFailure());
    begin_anew();
  }
  EXPECT_GT(lent, 0u) << "or whole free spans were enough";
}

// A short run brings a slot or two, although four are requested. The rest come from lent pages, not
// from fresh ones.
TEST_F(LargePhaseChange, WhatShortRunsDoNotBringIsLent) {
  LOAM_TRACE_SEED(random);
  uint64_t fresh = 0;
  for (const auto& [from, to] : {std::tuple{12224, 20416}, {12224, 32768}, {20416, 32768}}) {
    fill_and_thin(size_t(from));
    const uint64_t before = fresh_bytes();
    const unsigned c = class_for(size_t(to));
    std::vector<void*> second;
    while (second.size() < kBytes * 7 / 10 / size_t(to)) {
      for (void* block : take(c, 4)) second.push_back(block);
    }
    fresh += fresh_bytes() - before;
    EXPECT_TRUE(heap->is_valid());
    give(first, kept);
    kept.clear();
    give(c, second);
    begin_anew();
  }
  // 3.6 MiB; 4.5 if a refill gets only a short run before it touches fresh pages.
  EXPECT_LE(fresh, size_t{4} << 20);
}

TEST_F(LargePhaseChange, WhereHalfWasFreedTheNextSizesMoveInToo) {
  LOAM_TRACE_SEED(random);
  for (const auto& [from, low, high, share] : {std::tuple{2048, 16, 500, 38},
                                               {704, 16, 256, 38},
                                               {6144, 100, 2000, 35},
                                               {20480, 500, 4096, 30}}) {
    first = class_for(size_t(from));
    kept = take(first, kBytes / size_t(from));
    for (void*& block : kept) std::swap(block, kept[random.below(kept.size())]);
    const std::vector<void*> freed(kept.begin() + static_cast<ptrdiff_t>(kept.size() / 2),
                                   kept.end());
    kept.resize(kept.size() / 2);
    give(first, freed);
    const uint64_t before = fresh_bytes();
    std::vector<std::pair<unsigned, void*>> second;
    for (size_t bytes = 0; bytes < kBytes * size_t(share) / 100;) {
      const unsigned c = class_for(random.between(unsigned(low), unsigned(high)));
      for (void* block : take(c, 8)) second.emplace_back(c, block);
      bytes += 8 * size_t{kSizeClasses[c].bytes};
    }
    EXPECT_LE(fresh_bytes() - before, kBytes / 10)
        << share << " % of the memory as other blocks after half of " << from;
    EXPECT_TRUE(heap->is_valid());
    for (const auto& [c, block] : second) give_any(c, {block});
    give_any(first, kept);
    kept.clear();
    ASSERT_FALSE(HasFailure());
    begin_anew();
  }
}

TEST_F(LargePhaseChange, SmallerBlocksFitWhereLargerOnesDoNot) {
  fill_and_thin(208);
  std::vector<void*> large, small;
  const unsigned a = class_for(8192), b = class_for(416);
  uint64_t fresh = 0;
  for (size_t bytes = 0; bytes < kBytes / 4; bytes += 16 * 416) {
    // Finds no donor: a span of two pages has a free range of that length only if it has no block
    // at all.
    for (void* block : take(a, 1)) large.push_back(block);
    const uint64_t before = fresh_bytes();
    for (void* block : take(b, 16)) small.push_back(block);
    fresh += fresh_bytes() - before;
  }
  EXPECT_LE(fresh, kBytes / 64);
  give_any(a, large);
  give_any(b, small);
  give_any(first, kept);
  kept.clear();
}

TEST_F(LargePhaseChange, ALargeRunThatWasFreshHasTheNextOneFindSome) {
  fill_and_thin(16384);
  for (int i = 0; i < 100; ++i) heap->make_room_for_runs(Pages(kMaxSpanPages + 1));
  EXPECT_EQ(heap->stats(first).absent_pages, 0u) << "they would be too short";
  for (int i = 0; i < 100; ++i) heap->make_room_for_runs(Pages(16));
  EXPECT_GT(heap->stats(first).absent_pages, 0u);
  // Pages of spans that became empty, and pages that spans lent.
  const uint64_t before = fresh_bytes();
  std::vector<Span*> runs;
  for (size_t i = 0; i < kBytes / 2 / Pages(16).bytes(); ++i) {
    runs.push_back(pages->allocate_large(Pages(16), Pages(1), Pages(16).bytes(), 0).span);
    ASSERT_NE(runs.back(), nullptr);
  }
  EXPECT_LE(fresh_bytes() - before, kBytes / 16);
  for (Span* run : runs) pages->free(run);
}

TEST_F(LargePhaseChange, ABusyClassKeepsItsPages) {
  const unsigned a = class_for(8192), b = class_for(12224);
  std::vector<void*> busy = take(a, 2'000);
  for (int breath = 0; breath < 20; ++breath) {
    const std::vector<void*> out(busy.end() - 200, busy.end());
    busy.resize(busy.size() - 200);
    give(a, out);
    const std::vector<void*> other = take(b, 50);
    const std::vector<void*> in = take(a, 200);
    busy.insert(busy.end(), in.begin(), in.end());
    give(b, other);
  }
  EXPECT_EQ(heap->stats(a).absent_pages, 0u);
  give(a, busy);
}

TEST_F(LargePhaseChange, PureSpansKeepTheirPages) {
  heap->keep_spans_pure();
  fill_and_thin(16384);
  const unsigned c = class_for(4096);
  const std::vector<void*> second = take(c, 1000);
  EXPECT_EQ(heap->stats(first).absent_pages + heap->stats(c).absent_pages, 0u);
  give(c, second);
}

TEST_F(LargePhaseChange, RefusedMemoryIsMadeUpForByLenders) {
  fill_and_thin(16384);
  // The last search for lenders found none, and would not be repeated soon.
  const unsigned c = class_for(4096);
  fake::fail(fake::Call::kReserve);
  fake::fail(fake::Call::kCommit);
  heap->keep_spans_pure();
  std::vector<void*> filler;
  for (void* block = nullptr; heap->take_slots({class_for(32768), &block, 1}) == 1;)
    filler.push_back(block);
  for (void* block = nullptr; heap->take_slots({c, &block, 1}) == 1;) filler.push_back(block);
  heap->keep_spans_pure(false);
  EXPECT_EQ(heap->stats(first).absent_pages, 0u);
  const size_t free = heap->stats(first).free_slots;
  const std::vector<void*> second = take(c, kBytes / 4096);
  EXPECT_GT(second.size(), free * 4 / 2) << "half of what was free in its spans";
  EXPECT_GT(heap->stats(first).absent_pages, 0u);
  fake::clear_failures();
  for (void* block : filler) give(static_cast<unsigned>(class_at(block)), {block});
  give(c, second);
}

// This holds however few short runs there are, and however much memory is beside them.
TEST_F(LargePhaseChange, RefusedMemoryIsMadeUpForByShortRuns) {
  const unsigned c = class_for(12224);
  Span* const run = pages->allocate_span({Pages(3), kNoClass, kNoClass, 0});
  ASSERT_NE(run, nullptr);
  fake::touch(span_base(run), Pages(3).bytes());
  std::vector<void*> filler = take(class_for(32768), 200);
  fake::fail(fake::Call::kReserve);
  fake::fail(fake::Call::kCommit);
  for (const size_t bytes : {size_t{32768}, size_t{12224}}) {
    for (void* block = nullptr; heap->take_slots({class_for(bytes), &block, 1}) == 1;)
      filler.push_back(block);
  }
  EXPECT_TRUE(take(c, 1).empty());
  pages->free(run);
  EXPECT_FALSE(pages->hints().pages_wait());
  const std::vector<void*> one = take(c, 2);
  EXPECT_EQ(one.size(), 1u);
  fake::clear_failures();
  for (void* block : filler) give(static_cast<unsigned>(class_at(block)), {block});
  give(c, one);
}

}  // namespace
}  // namespace loam
