// Mixed spans on the pretended system, compared with a model that knows every block, and the
// mistakes of callers.
#include "small/mixed_heap.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "map/metadata.h"
#include "must_run.h"
#include "os/fatal.h"
#include "random.h"
#include "small/bin.h"
#include "small/mixed_model.h"
#include "small/take_slots.h"

namespace loam {
namespace {

namespace fake = os::fake;
using test::Random;

using Model = test::MixedModel;
using test::number;

class MixedHeapTest : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    fake::reset();
    fake::set_granularity(GetParam());
  }
};

TEST_P(MixedHeapTest, AnySequenceAgreesWithTheModel) {
  uint64_t converted = 0, lends = 0;
  for (uint64_t salt = 0; salt < 6; ++salt) {
    Random random = test::seeded(salt);
    LOAM_TRACE_SEED(random);
    Model model;
    for (unsigned step = 0; step < 400; ++step) {
      // The walks with an odd number have one part; the other walks soon have more.
      if (salt % 2 == 0 && random.chance(2)) model.mixed().use_more_parts();
      const unsigned home = random.below(MixedHeap::kHomes);
      const unsigned c = random.between(1, Model::kClasses - 1);
      switch (random.below(8)) {
        case 0:
          model.take_from_bin(c, random.between(1, 12 * kSizeClasses[c].slots));
          break;
        case 1:
          model.thin(random, model.size() * random.between(5, 90) / 100);
          break;
        case 2:
          model.donate(model.sparsest(), c, random.magnitude(64 << 10), home);
          break;
        case 3:
        case 4:
          // Takes several sizes until nothing is left for one of them, so that full spans occur
          // too.
          for (unsigned i = random.between(1, 4); i != 0; --i) {
            model.take_mixed(random.between(1, Model::kClasses - 1), random.between(1, 200), home);
          }
          break;
        case 5:
          model.mixed().compact();
          break;
        case 6:
          model.give_together(random, random.magnitude(1000));
          break;
        case 7: {
          const Pages lent = model.mixed().lend(Pages(random.magnitude(256)));
          lends += lent != Pages(0);
          break;
        }
      }
      ASSERT_NO_FATAL_FAILURE(model.check()) << "step " << step;
      ASSERT_FALSE(HasFailure()) << "step " << step;
    }
    converted += model.mixed().stats().converted;
    model.expect_empty_after_the_last_free(random);
  }
  EXPECT_GT(converted, 200u) << "the walks should meet mixed spans";
  EXPECT_GT(lends, 0u) << "... with free pages";
}

TEST_P(MixedHeapTest, LendsExactlyTheFreePagesInside) {
  test::MustRun all_lent{"enough was free for all of it to be lent"};
  for (const size_t bytes : {704, 2048, 5120}) {
    Random random = test::seeded(bytes);
    LOAM_TRACE_SEED(random);
    Model model;
    model.pages().keep_falls();
    const unsigned c = class_for(bytes);
    model.take_from_bin(c, unsigned((size_t{8} << 20) / bytes));
    model.thin(random, model.size() / 5);
    while (model.donate(c, class_for(16), 1 << 20) != 0) continue;
    if (bytes > kFineLimit) {
      EXPECT_EQ(model.mixed().stats().span_bytes, model.pages_with_a_mixed_block().bytes())
          << bytes << ": at once";
    }
    // Some spans are filled again, so that spans of all kinds have free pages.
    for (unsigned i = 0; i < 40; ++i)
      model.take_mixed(random.between(1, class_for(1024)), random.between(1, 100));
    model.thin(random, model.size() * 2 / 3);
    ASSERT_NO_FATAL_FAILURE(model.check());
    const size_t span_bytes = model.mixed().stats().span_bytes;
    const Pages live = model.pages_with_a_mixed_block();
    Pages lent;
    for (Pages more(1); more != Pages(0); lent += more) {
      more = model.mixed().lend(Pages(8));
      ASSERT_NO_FATAL_FAILURE(model.check());
    }
    EXPECT_GT(lent, Pages(0)) << bytes;
    EXPECT_EQ(model.mixed().stats().span_bytes, span_bytes - lent.bytes()) << bytes;
    EXPECT_GE(model.mixed().stats().span_bytes, live.bytes()) << bytes;
    // If little is free, there is no search.
    const MixedStats left = model.mixed().stats();
    if (left.free_bytes >= size_t{128} << 10 &&
        left.free_bytes >= Pages(left.span_bytes / kPageBytes / 4).bytes()) {
      all_lent.ran();
      EXPECT_EQ(model.mixed().stats().span_bytes, live.bytes()) << bytes << ": something is left";
    }
    // The pages now have other owners, and are backed as before. The blocks beside them have not
    // changed.
    const uint64_t fresh = model.pages().stats().fresh_pages;
    std::vector<Span*> runs;
    while (Span* run = model.pages().allocate_span({Pages(1), kNoClass, kNoClass, 0},
                                                   PageHeap::Source::kBacked)) {
      runs.push_back(run);
      fake::touch(span_base(run), kPageBytes);
    }
    EXPECT_GE(runs.size(), lent.count);
    EXPECT_EQ(model.pages().stats().fresh_pages, fresh);
    for (Span* run : runs) model.pages().free(run);
    model.expect_empty_after_the_last_free(random);
  }
}

TEST_P(MixedHeapTest, WhatNobodyWantedForASecondIsLent) {
  Random random = test::seeded(13);
  LOAM_TRACE_SEED(random);
  Model model;
  const unsigned c = class_for(704);
  model.open_sparse_spans(random, c, 200, 3, class_for(64));
  model.thin(random, model.size() / 8);
  const size_t span_bytes = model.mixed().stats().span_bytes;
  const auto pass = [&](bool period_ends) {
    return model.mixed().lend_unwanted(period_ends, 1 << 20);
  };
  EXPECT_TRUE(pass(true));
  EXPECT_TRUE(pass(false));
  EXPECT_EQ(model.mixed().stats().span_bytes, span_bytes) << "it may be wanted in a moment";
  // A thread that takes half of the free bytes in each period wants them.
  const size_t half = model.mixed().stats().free_bytes / 2;
  for (unsigned i = 0; i < 3; ++i) {
    std::vector<void*> blocks;
    for (size_t bytes = 0; bytes < half; bytes += 64 * 100) {
      for (void* block : model.take_mixed(class_for(64), 100)) blocks.push_back(block);
    }
    for (void* block : blocks) model.give(block, false);
    static_cast<void>(pass(true));
  }
  ASSERT_NO_FATAL_FAILURE(model.check());
  EXPECT_GT(model.mixed().stats().free_bytes, half - half / 8) << "what is wanted stays";
  while (pass(true)) ASSERT_NO_FATAL_FAILURE(model.check());
  EXPECT_EQ(model.mixed().stats().span_bytes, model.pages_with_a_mixed_block().bytes());
  EXPECT_FALSE(pass(true)) << "nobody has to come for nothing";
  model.expect_empty_after_the_last_free(random);
}

TEST_P(MixedHeapTest, ASearchForThemMeetsEverySpanThoughSpansComeAndGo) {
  Random random = test::seeded(14);
  LOAM_TRACE_SEED(random);
  Model model;
  const unsigned c = class_for(704);
  for (int round = 0; round < 4; ++round) {
    model.open_sparse_spans(random, c, 200, 4, class_for(16));
    // The search takes a few looks at a time. Each time some of the spans that it has not met yet
    // end.
    for (int step = 0; step < 40; ++step) {
      model.thin(random, model.size() * 15 / 16);
      static_cast<void>(model.mixed().lend_unwanted(step % 8 == 0, 2 * kLooksAPurge));
      ASSERT_NO_FATAL_FAILURE(model.check());
    }
    unsigned passes = 0;
    while (model.mixed().lend_unwanted(true, 64 * kLooksAPurge))
      ASSERT_LT(++passes, 1000u) << "it does not end";
  }
  model.expect_empty_after_the_last_free(random);
}

TEST_P(MixedHeapTest, AConversionKeepsWhatWasGivenBackToTheSystem) {
  Random random = test::seeded(10);
  LOAM_TRACE_SEED(random);
  Model model;
  const unsigned c = class_for(960);  // spans of eight pages
  model.take_from_bin(c, 40 * kSizeClasses[c].slots);
  model.thin(random, model.size() / 20);
  Pages purged;
  {
    Lock lock(model.bin(c).mutex());
    purged = model.bin(c).compact_locked(model.pages(), c);
  }
  const size_t resident = fake::resident_bytes();
  unsigned converted = 0;
  while (const unsigned more = model.donate(c, class_for(64), 1 << 20)) converted += more;
  ASSERT_GT(converted, 0u);
  ASSERT_NO_FATAL_FAILURE(model.check());
  BinStats bin;
  {
    Lock lock(model.bin(c).mutex());
    bin = model.bin(c).stats_locked();
  }
  EXPECT_EQ(bin.unbacked_pages + model.mixed().stats().unbacked_pages, purged.count)
      << "counted once, here or there";
  // Taking all blocks touches all pages again.
  while (!model.take_mixed(class_for(16), 200).empty()) continue;
  EXPECT_EQ(model.mixed().stats().free_bytes, 0u);
  EXPECT_EQ(model.mixed().stats().unbacked_pages, 0u);
  EXPECT_GE(fake::resident_bytes(), resident);
  EXPECT_EQ(model.mixed().compact().count, 0u);
  model.expect_empty_after_the_last_free(random);
}

TEST_P(MixedHeapTest, CompactGivesBackTheFreePagesInside) {
  Random random = test::seeded(11);
  LOAM_TRACE_SEED(random);
  Model model;
  const unsigned c = class_for(704);  // spans of eight pages
  model.open_sparse_spans(random, c, 200, 25, class_for(16));
  ASSERT_GT(model.mixed().stats().spans, 0u);
  const size_t resident = fake::resident_bytes();
  const Pages purged = model.mixed().compact();
  EXPECT_EQ(model.mixed().stats().unbacked_pages, purged.count);
  EXPECT_EQ(resident - fake::resident_bytes(), purged.bytes());
  if (GetParam() == kPageBytes) {
    EXPECT_GT(purged.count, model.mixed().stats().spans) << "a twenty-fifth lives";
  }
  const uint64_t calls = fake::calls(fake::Call::kPurge);
  EXPECT_EQ(model.mixed().compact().count, 0u) << "there was nothing left";
  EXPECT_EQ(fake::calls(fake::Call::kPurge), calls);
  ASSERT_NO_FATAL_FAILURE(model.check());
  model.expect_empty_after_the_last_free(random);  // checks that live blocks kept their content
}

TEST_P(MixedHeapTest, LentPagesKeepNoTables) {
  Random random = test::seeded(15);
  LOAM_TRACE_SEED(random);
  Model model;
  const unsigned c = class_for(2048);
  ASSERT_GT(kSizeClasses[c].pages, 6u) << "more pages may be lent than there is room for blocks";
  model.take_from_bin(c, 200 * kSizeClasses[c].slots);
  model.thin(random, model.size() / 10);
  const size_t used = metadata.used_bytes();
  while (model.donate(c, class_for(16), 1 << 20) != 0) continue;
  const size_t tables = metadata.used_bytes() - used;
  ASSERT_GT(tables, 0u);
  ASSERT_LT(model.mixed().stats().span_bytes,
            model.mixed().stats().spans * Pages(kSizeClasses[c].pages).bytes() / 2);
  model.mixed().compact();
  EXPECT_LT(metadata.used_bytes() - used, tables / 10) << "they hold two blocks each";
  ASSERT_NO_FATAL_FAILURE(model.check());
  model.expect_empty_after_the_last_free(random);
}

TEST_P(MixedHeapTest, ARefusedPurgeMarksNothing) {
  Random random = test::seeded(12);
  LOAM_TRACE_SEED(random);
  Model model;
  const unsigned c = class_for(704);
  model.open_sparse_spans(random, c, 100, 25, class_for(16));
  fake::fail(fake::Call::kPurge);
  EXPECT_EQ(model.mixed().compact().count, 0u);
  EXPECT_EQ(model.mixed().stats().unbacked_pages, 0u);
  fake::clear_failures();
  ASSERT_NO_FATAL_FAILURE(model.check());
  model.expect_empty_after_the_last_free(random);
}

INSTANTIATE_TEST_SUITE_P(Granularity, MixedHeapTest, testing::Values(4096, 16384, 65536));

/// One mixed span. Of its slots of 512 bytes only the first one is live, and the blocks that the
/// rest was cut into.
class OneMixedSpan : public testing::Test {
 protected:
  static constexpr size_t kBytes = 512;

  void SetUp() override {
    fake::reset();
    std::vector<void*> slots(kSizeClasses[c].slots);
    Lock lock(bin.mutex());
    ASSERT_EQ(test::take_slots(bin, pages, c, slots.data(), unsigned(slots.size())), slots.size());
    first = slots.back();  // last first
    slots.pop_back();
    bin.give_locked(pages, *mixed, c, slots.data(), unsigned(slots.size()));
    ASSERT_EQ(bin.donate_locked(*mixed, c, 64, 1), 1u);
    ASSERT_EQ(class_at(first), kMixedClass);
  }
  void TearDown() override {
    set_corruption_policy(CorruptionPolicy::kAbort);
    EXPECT_TRUE(mixed->is_valid());
  }

  void* take(size_t bytes) {
    void* block = nullptr;
    EXPECT_EQ(test::take_blocks(*mixed, class_for(bytes), &block, 1), 1u);
    return block;
  }
  std::string report_of_giving(void* block) {
    set_corruption_policy(CorruptionPolicy::kReport);
    fake::take_errors();
    const MixedStats before = mixed->stats();
    mixed->give(&block, 1);
    EXPECT_EQ(mixed->stats().free_bytes, before.free_bytes) << "a misuse changes nothing";
    EXPECT_EQ(mixed->stats().given, before.given);
    return fake::take_errors();
  }

  const unsigned c = class_for(kBytes);
  std::unique_ptr<PageHeap> owner = std::make_unique<PageHeap>();
  PageHeap& pages = *owner;
  std::unique_ptr<MixedHeap> mixed = std::make_unique<MixedHeap>(pages);
  Bin bin;
  void* first = nullptr;
};

TEST_F(OneMixedSpan, BlocksOfAllSizesStandSideBySide) {
  EXPECT_EQ(mixed->block_bytes(number(first)), kBytes);
  void* a = take(16);
  void* b = take(1024);
  void* d = take(80);
  EXPECT_EQ(number(a), number(first) + kBytes);
  EXPECT_EQ(number(b), number(a) + 16);
  EXPECT_EQ(number(d), number(b) + 1024);
  EXPECT_EQ(mixed->block_bytes(number(a)), 16u);
  EXPECT_EQ(mixed->block_bytes(number(b)), 1024u);
  EXPECT_EQ(mixed->block_bytes(number(d)), 80u);
  // A free range in the middle serves requests that fit, and joins its neighbours.
  mixed->give(&b, 1);
  EXPECT_EQ(mixed->block_bytes(number(b)), 0u);
  mixed->give(&a, 1);
  EXPECT_EQ(take(1024), a);
  void* all[] = {a, d, first};
  mixed->give(all, 3);
  EXPECT_EQ(mixed->stats().spans, 0u);
  EXPECT_EQ(pages.stats().used.count, 0u);
  EXPECT_EQ(class_at(first), 0u) << "the pages are the page heap's again";
}

TEST_F(OneMixedSpan, OneCallServesAtMostWhatIsWantedAndTellsHowMuch) {
  const size_t room = mixed->stats().free_bytes;
  std::vector<void*> blocks(2 * room / 1024);
  const unsigned got =
      test::take_blocks(*mixed, class_for(1024), blocks.data(), unsigned(blocks.size()));
  EXPECT_EQ(got, room / 1024);
  for (unsigned i = 0; i + 1 < got; ++i)
    EXPECT_GT(number(blocks[i]), number(blocks[i + 1])) << "last first";
  EXPECT_EQ(test::take_blocks(*mixed, class_for(1024), blocks.data(), 1), 0u);
  EXPECT_FALSE(mixed->may_serve(class_for(1024))) << "the bound was learnt";
  EXPECT_EQ(mixed->stats().free_bytes, room % 1024);
}

TEST_F(OneMixedSpan, LargerBlocksAreNotServed) {
  void* block;
  for (unsigned big = class_for(MixedHeap::kLargestBlock) + 1; big < kSizeClassCount; ++big) {
    EXPECT_EQ(test::take_blocks(*mixed, big, &block, 1), 0u);
    EXPECT_FALSE(mixed->may_serve(big));
  }
}

TEST_F(OneMixedSpan, MisusesAreToldApart) {
  void* block = take(64);
  EXPECT_NE(report_of_giving(static_cast<char*>(block) + 16).find("middle of a block"),
            std::string::npos);
  EXPECT_NE(report_of_giving(static_cast<char*>(first) + kBytes - 16).find("middle of a block"),
            std::string::npos);
  mixed->give(&block, 1);
  EXPECT_NE(report_of_giving(block).find("double free"), std::string::npos);
  // Memory that was never in a block of this span looks like a freed one.
  EXPECT_NE(report_of_giving(static_cast<char*>(first) + 8192).find("double free"),
            std::string::npos);
  int foreign = 0;
  EXPECT_NE(report_of_giving(&foreign).find("no block"), std::string::npos);
  void* slot = nullptr;
  {
    Lock lock(bin.mutex());
    ASSERT_EQ(test::take_slots(bin, pages, c, &slot, 1), 1u);
  }
  EXPECT_NE(report_of_giving(slot).find("no block"), std::string::npos) << "a small span's slot";
  EXPECT_EQ(mixed->block_bytes(number(first)), kBytes) << "its neighbours are as they were";
}

TEST_F(OneMixedSpan, WhatItServesIsKnownExactlyWhileBlocksComeBack) {
  for (uint64_t salt = 20; salt < 40; ++salt) {
    Random random = test::seeded(salt);
    LOAM_TRACE_SEED(random);
    // The span is full of blocks of many sizes, of many of one granule, or in between.
    const unsigned most = random.magnitude(64);
    std::vector<std::pair<uintptr_t, size_t>> blocks;
    for (void* block = nullptr; mixed->stats().free_bytes != 0;) {
      const size_t bytes = kSizeClasses[class_for(16 * random.between(1, most))].bytes;
      const size_t taken = test::take_blocks(*mixed, class_for(bytes), &block, 1) == 1 ? bytes
                           : test::take_blocks(*mixed, class_for(kGranuleBytes), &block, 1) == 1
                               ? kGranuleBytes
                               : 0;
      ASSERT_NE(taken, 0u);
      blocks.emplace_back(number(block), taken);
    }
    const size_t granules = mixed->stats().span_bytes / kGranuleBytes;
    const uintptr_t base = number(first);
    std::vector<bool> is_free(granules);
    while (!blocks.empty()) {
      std::vector<void*> together(std::min<size_t>(blocks.size(), random.magnitude(200)));
      for (void*& block : together) {
        std::swap(blocks[random.below(blocks.size())], blocks.back());
        const auto [address, bytes] = blocks.back();
        blocks.pop_back();
        block = reinterpret_cast<void*>(address);
        for (size_t i = 0; i < bytes / kGranuleBytes; ++i)
          is_free[(address - base) / kGranuleBytes + i] = true;
      }
      mixed->give(together.data(), unsigned(together.size()));
      size_t run = 0, longest = 0;
      for (const bool here : is_free) longest = std::max(longest, run = here ? run + 1 : 0);
      for (unsigned size = 1; kSizeClasses[size].bytes <= MixedHeap::kLargestBlock; ++size) {
        ASSERT_EQ(mixed->may_serve(size), kSizeClasses[size].bytes <= longest * kGranuleBytes)
            << kSizeClasses[size].bytes << " bytes, " << longest << " granules";
      }
      ASSERT_TRUE(mixed->is_valid());
    }
    ASSERT_EQ(mixed->stats().spans, 1u);
  }
}

TEST_F(OneMixedSpan, BlocksThatAreWantedStayAsTheyAre) {
  void* small[3] = {take(64), take(64), take(64)};
  void* large[2] = {take(128), take(128)};
  const MixedStats before = mixed->stats();
  MixedHeap::Kept kept{};
  kept.wanted[class_for(64)] = 2;
  kept.wanted[class_for(512)] = 9;
  void* together[] = {large[0], small[2], small[0], large[1], small[1]};
  mixed->give(together, 5, &kept);
  ASSERT_EQ(kept.count, 2u);
  EXPECT_EQ(kept.block[0], small[2]);
  EXPECT_EQ(kept.block[1], small[0]);
  EXPECT_EQ(kept.size_class[0], class_for(64));
  EXPECT_EQ(kept.size_class[1], class_for(64));
  EXPECT_EQ(kept.wanted[class_for(64)], 0u);
  EXPECT_EQ(kept.wanted[class_for(512)], 9u);
  EXPECT_EQ(mixed->stats().given - before.given, 3u);
  EXPECT_EQ(mixed->stats().free_bytes - before.free_bytes, 64u + 2 * 128u);
  EXPECT_EQ(mixed->blocks(class_for(64)), 2u);
  EXPECT_EQ(mixed->block_bytes(number(small[0])), 64u);
  EXPECT_EQ(mixed->block_bytes(number(small[1])), 0u);
  EXPECT_TRUE(mixed->is_valid());
  // A misused block is never kept, even if it is wanted.
  kept.count = 0;
  for (uint8_t& wanted : kept.wanted) wanted = 9;
  set_corruption_policy(CorruptionPolicy::kReport);
  fake::take_errors();
  void* wrong[] = {small[1], static_cast<char*>(small[0]) + 16};
  mixed->give(wrong, 2, &kept);
  const std::string errors = fake::take_errors();
  EXPECT_NE(errors.find("double free"), std::string::npos);
  EXPECT_NE(errors.find("middle of a block"), std::string::npos);
  EXPECT_EQ(kept.count, 0u);
  // A block of any part.
  mixed->use_more_parts();
  kept.wanted[class_for(64)] = 1;
  void* last[] = {small[2], small[0]};
  mixed->give(last, 2, &kept);
  ASSERT_EQ(kept.count, 1u);
  EXPECT_EQ(kept.block[0], small[2]);
  EXPECT_EQ(mixed->block_bytes(number(small[0])), 0u);
  mixed->give(&small[2], 1);
}

TEST_F(OneMixedSpan, ABlockThatComesTwiceInOneCallIsFoundAlsoWhenItsSpanIsEmpty) {
  set_corruption_policy(CorruptionPolicy::kReport);
  for (const size_t repeats : {1u, 300u}) {
    const uint64_t before = mixed->stats().given;
    void* other = take(64);
    std::vector<void*> together(2 + repeats, other);
    if (repeats != 1) together[0] = first;  // in the end the span has none left
    together[1] = other;
    fake::take_errors();
    mixed->give(together.data(), unsigned(together.size()));
    EXPECT_NE(fake::take_errors().find("double free"), std::string::npos);
    EXPECT_EQ(mixed->stats().given - before, repeats == 1 ? 1u : 2u) << "each block once";
    EXPECT_TRUE(mixed->is_valid());
  }
  EXPECT_EQ(mixed->stats().spans, 0u);
  EXPECT_EQ(pages.stats().used.count, 0u);
  EXPECT_TRUE(pages.is_valid());
}

TEST_F(OneMixedSpan, OfFewBlocksTheTablesGoBackAndComeAgain) {
  const size_t table_bytes = mixed_table_bytes(kSizeClasses[c].pages), used = metadata.used_bytes();
  void* small = take(16);
  void* large = take(2048);
  const MixedStats before = mixed->stats();
  const auto is_as_before = [&] {
    EXPECT_TRUE(mixed->is_valid());
    EXPECT_EQ(mixed->stats().free_bytes, before.free_bytes);
    EXPECT_EQ(mixed->blocks(class_for(16)), 1u);
    EXPECT_EQ(mixed->block_bytes(number(first)), kBytes);
    EXPECT_EQ(mixed->block_bytes(number(small)), 16u);
    EXPECT_EQ(mixed->block_bytes(number(large)), 2048u);
    EXPECT_EQ(mixed->block_bytes(number(large) + 16), 0u);
    EXPECT_EQ(mixed->block_bytes(number(large) + 2048), 0u);
  };
  mixed->compact();
  EXPECT_EQ(metadata.used_bytes(), used - table_bytes);
  is_as_before();
  EXPECT_NE(report_of_giving(static_cast<char*>(large) + 16).find("middle of a block"),
            std::string::npos);
  EXPECT_NE(report_of_giving(static_cast<char*>(large) + 2048).find("double free"),
            std::string::npos);
  mixed->compact();
  is_as_before();

  void* more[] = {take(80), take(1024), take(80)};
  EXPECT_EQ(metadata.used_bytes(), used) << "its tables are back";
  EXPECT_EQ(number(more[0]), number(large) + 2048);
  mixed->compact();
  EXPECT_EQ(metadata.used_bytes(), used) << "six blocks are too many";
  mixed->give(&more[2], 1);
  mixed->compact();
  EXPECT_EQ(metadata.used_bytes(), used - table_bytes) << "five are not";
  EXPECT_EQ(mixed->block_bytes(number(more[1])), 1024u);
  mixed->give(more, 2);
  is_as_before();

  // Blocks are returned one by one, and the caller keeps one that it wants.
  MixedHeap::Kept kept{};
  kept.wanted[class_for(16)] = 1;
  void* both[] = {small, large};
  mixed->give(both, 2, &kept);
  ASSERT_EQ(kept.count, 1u);
  EXPECT_EQ(kept.block[0], small);
  EXPECT_EQ(mixed->block_bytes(number(large)), 0u);
  EXPECT_TRUE(mixed->is_valid());
  EXPECT_TRUE(mixed->may_serve(class_for(2048))) << "its range is free again";
  EXPECT_NE(report_of_giving(large).find("double free"), std::string::npos);
  mixed->give(&small, 1);
  mixed->give(&first, 1);
  EXPECT_EQ(mixed->stats().spans, 0u);
  EXPECT_EQ(pages.stats().used.count, 0u);
  EXPECT_TRUE(pages.is_valid());
}

TEST_F(OneMixedSpan, WithoutMemoryForItsTablesASealedSpanServesNobodyAndTakesBlocksBack) {
  void* other = take(64);
  mixed->compact();
  fake::fail(fake::Call::kReserveMetadata);
  fake::fail(fake::Call::kCommitMetadata);
  std::vector<void*> pieces;
  const size_t table_bytes = mixed_table_bytes(kSizeClasses[c].pages);
  while (void* piece = metadata.allocate(table_bytes)) pieces.push_back(piece);
  void* block = nullptr;
  EXPECT_EQ(test::take_blocks(*mixed, class_for(64), &block, 1), 0u);
  EXPECT_TRUE(mixed->is_valid());
  mixed->give(&other, 1);
  EXPECT_TRUE(mixed->is_valid());
  fake::clear_failures();
  for (void* piece : pieces) metadata.free(piece, table_bytes);
  EXPECT_EQ(take(64), other);
  void* both[] = {other, first};
  mixed->give(both, 2);
  EXPECT_EQ(mixed->stats().spans, 0u);
}

TEST_F(OneMixedSpan, AfterItsReleaseNothingIsFound) {
  mixed->give(&first, 1);
  EXPECT_EQ(mixed->stats().spans, 0u);
  EXPECT_EQ(mixed->block_bytes(number(first)), 0u);
  EXPECT_NE(report_of_giving(first).find("no block"), std::string::npos);
}

TEST_F(OneMixedSpan, BlockBytesAnswersAnyAddress) {
  for (const uintptr_t address :
       {uintptr_t{0}, uintptr_t{1}, ~uintptr_t{0}, uintptr_t{1} << 46, number(&bin)}) {
    EXPECT_EQ(mixed->block_bytes(address), 0u);
  }
  for (uintptr_t offset = 1; offset < 4 * kPageBytes; ++offset) {
    EXPECT_EQ(mixed->block_bytes(number(first) + offset), 0u) << offset;
  }
}

TEST_F(OneMixedSpan, StrayPointersOfTheOldClassComeHomeThroughTheirBin) {
  BinStats before, after;
  {
    Lock lock(bin.mutex());
    before = bin.stats_locked();
    bin.give_locked(pages, *mixed, c, &first, 1);
    after = bin.stats_locked();
  }
  EXPECT_EQ(mixed->stats().spans, 0u);
  EXPECT_EQ(mixed->stats().given, 1u);
  EXPECT_EQ(after.given, before.given) << "it was no slot of the bin's any more";
  EXPECT_EQ(after.free_slots, before.free_slots);
  EXPECT_TRUE(bin.is_valid_locked(c));
}

TEST(MixedHeapMetadata, WithoutMemoryForItsTablesASpanStaysAsItWas) {
  fake::reset();
  auto pages = std::make_unique<PageHeap>();
  MixedHeap mixed(*pages);
  Bin bin;
  const unsigned c = class_for(512);
  std::vector<void*> slots(20u * kSizeClasses[c].slots);
  Lock lock(bin.mutex());
  ASSERT_EQ(test::take_slots(bin, *pages, c, slots.data(), unsigned(slots.size())), slots.size());
  std::vector<void*> some;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i % 8 != 0) some.push_back(slots[i]);
  }
  bin.give_locked(*pages, mixed, c, some.data(), unsigned(some.size()));
  const BinStats before = bin.stats_locked();

  fake::fail(fake::Call::kReserveMetadata);
  fake::fail(fake::Call::kCommitMetadata);
  // Pieces that the arena has already do not ask the system.
  std::vector<void*> pieces;
  const size_t table_bytes = kSizeClasses[c].pages * kPageBytes / kGranuleBytes / 8 * 2;
  while (void* piece = metadata.allocate(table_bytes)) pieces.push_back(piece);
  EXPECT_EQ(bin.donate_locked(mixed, c, 64, 1 << 20), 0u);
  const BinStats after = bin.stats_locked();
  EXPECT_EQ(after.spans, before.spans);
  EXPECT_EQ(after.free_slots, before.free_slots);
  EXPECT_TRUE(bin.is_valid_locked(c));
  EXPECT_TRUE(mixed.is_valid());
  EXPECT_EQ(mixed.stats().spans, 0u);
  for (size_t i = 0; i < slots.size(); i += 8) EXPECT_EQ(class_at(slots[i]), c);

  // The memory of one table is enough for one span, and is returned with it.
  fake::clear_failures();
  for (void* piece : pieces) metadata.free(piece, table_bytes);
  const size_t used = metadata.used_bytes();
  const unsigned converted = bin.donate_locked(mixed, c, 64, 1);
  EXPECT_EQ(converted, 1u);
  EXPECT_EQ(metadata.used_bytes(), used + table_bytes);
  for (size_t i = 0; i < slots.size(); i += 8) bin.give_locked(*pages, mixed, c, &slots[i], 1);
  EXPECT_EQ(mixed.stats().spans, 0u);
  EXPECT_EQ(metadata.used_bytes(), used);
  EXPECT_TRUE(bin.is_valid_locked(c));
}

TEST(MixedHeapDonors, ABinWithLittleToSpareKeepsItsSpans) {
  fake::reset();
  auto pages = std::make_unique<PageHeap>();
  MixedHeap mixed(*pages);
  Bin bin;
  const unsigned c = class_for(256);
  std::vector<void*> slots((1u << 20) / 256);
  Lock lock(bin.mutex());
  ASSERT_EQ(test::take_slots(bin, *pages, c, slots.data(), unsigned(slots.size())), slots.size());
  EXPECT_EQ(bin.donatable_bytes_hint(c), 0u);
  // Every ninth block is freed: less than a quarter of the bin.
  std::vector<void*> freed;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i % 9 == 0) freed.push_back(slots[i]);
  }
  bin.give_locked(*pages, mixed, c, freed.data(), unsigned(freed.size()));
  EXPECT_EQ(bin.donatable_bytes_hint(c), 0u);
  // Nearly full spans are not opened, however many blocks are requested, because their own class
  // fills them first.
  EXPECT_EQ(bin.donate_locked(mixed, c, 16, 1 << 20), 0u);
  // Every second slot is free and has no free neighbour: there is room for blocks of the class's
  // size and smaller, but not for larger ones.
  freed.clear();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i % 9 != 0 && (number(slots[i]) / 256) % 2 == 0) freed.push_back(slots[i]);
  }
  for (size_t i = 0; i < freed.size(); i += 512) {
    const size_t here = freed.size() - i < 512 ? freed.size() - i : 512;
    bin.give_locked(*pages, mixed, c, &freed[i], unsigned(here));
  }
  EXPECT_GE(bin.donatable_bytes_hint(c), size_t{400} << 10);
  const size_t spans = bin.stats_locked().spans;
  static_cast<void>(bin.donate_locked(mixed, c, 1024, 1 << 20));
  EXPECT_EQ(bin.stats_locked().spans, spans) << "no run of free slots is that long";
  EXPECT_GT(bin.donate_locked(mixed, c, 128, 16 << 10), 0u);
  EXPECT_TRUE(bin.is_valid_locked(c));
  EXPECT_TRUE(mixed.is_valid());
}

}  // namespace
}  // namespace loam
