// One size class against its model: the taken and given slots, the chosen span, and the effect of
// misuse.
#include "small/bin.h"

#include <algorithm>
#include <sstream>

#include "fake_system/fake.h"
#include "os/fatal.h"
#include "os/os.h"
#include "small/bin_model.h"

namespace loam {
namespace {

namespace fake = os::fake;
using test::BinModel;
using test::Random;

class BinTest : public testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override { fake::reset(); }
};

TEST_P(BinTest, RandomTakesAndGivesAgreeWithTheModel) {
  Random random = test::seeded(GetParam());
  LOAM_TRACE_SEED(random);
  BinModel model(GetParam());
  for (int step = 0; step < 600; ++step) {
    const bool grow = step / 150 % 2 == 0;
    if (model.live().empty() || random.chance(grow ? 60 : 40)) {
      const unsigned wanted = random.magnitude(64);
      ASSERT_EQ(model.take(wanted, true), wanted);
    } else {
      model.give_live(model.pick(random, random.magnitude(64)));
    }
    if (random.chance(3)) model.compact();
    model.check();
    ASSERT_FALSE(HasFailure()) << "step " << step;
  }
  model.check_contents();
  model.give_live(model.pick(random, model.live().size()));
  model.check();
  EXPECT_LE(model.stats().spans, 1u);
  model.compact();
  EXPECT_EQ(model.stats().spans, 0u);
  EXPECT_EQ(model.pages().stats().used.count, 0u);
}

TEST_P(BinTest, SlotsOfAFreshSpanAreHandedOutInAscendingOrder) {
  BinModel model(GetParam());
  const unsigned slots = model.info().slots;
  for (unsigned i = 0; i < slots; ++i) model.take(1);
  for (unsigned i = 1; i < slots; ++i) {
    ASSERT_EQ(static_cast<char*>(model.live()[i]) - static_cast<char*>(model.live()[i - 1]),
              static_cast<ptrdiff_t>(model.info().bytes));
  }
  EXPECT_EQ(model.stats().spans, 1u);
}

// Readers count spans that no eighth counts as full.
TEST_P(BinTest, AnEmptySpanCountsInTheLowestEighthAndAFullOneInNone) {
  constexpr size_t kSpans = 3;
  BinModel model(GetParam());
  const auto in_eighths = [&] {
    size_t spans = 0;
    for (const uint32_t in_eighth : model.stats().occupancy) spans += in_eighth;
    return spans;
  };
  model.keep_empty(kSpans);
  while (model.live().size() < kSpans * model.info().slots) model.take(1);
  EXPECT_EQ(model.stats().spans, kSpans);
  EXPECT_EQ(in_eighths(), 0u);
  model.give_live(model.live());
  EXPECT_EQ(model.stats().spans, kSpans);
  EXPECT_EQ(model.stats().occupancy[0], kSpans);
  EXPECT_EQ(in_eighths(), kSpans);
}

TEST_P(BinTest, NeighboursComeHomeInAnyOrder) {
  Random random = test::seeded(GetParam());
  LOAM_TRACE_SEED(random);
  for (int order = 0; order < 5; ++order) {
    BinModel model(GetParam());
    const unsigned slots = model.info().slots;
    for (unsigned i = 0; i < 3 * slots; ++i) model.take(1);
    std::vector<void*> blocks = model.live();
    std::sort(blocks.begin(), blocks.end());
    if (order == 1) std::reverse(blocks.begin(), blocks.end());
    for (size_t i = 0; i + 1 < blocks.size() && order == 2; i += 2)
      std::swap(blocks[i], blocks[i + 1]);
    for (size_t at = 0; order >= 3 && at < blocks.size();) {
      // Stretches of blocks, every second one reversed. In the last order they change places too.
      const size_t here = std::min<size_t>(random.magnitude(2 * slots) + 1, blocks.size() - at);
      if (random.chance(50)) std::reverse(&blocks[at], &blocks[at] + here);
      if (order == 4) std::rotate(&blocks[at], &blocks[at] + here / 2, &blocks[at] + here);
      at += here;
    }
    for (size_t at = 0; at < blocks.size();) {
      const size_t here = std::min<size_t>(random.magnitude(2 * slots) + 1, blocks.size() - at);
      model.give_live(std::vector<void*>(&blocks[at], &blocks[at] + here));
      model.check();
      ASSERT_FALSE(HasFailure()) << "order " << order << ", at " << at;
      at += here;
    }
    EXPECT_EQ(model.stats().spans, 0u);
    EXPECT_EQ(model.stats().given, blocks.size());
  }
}

TEST_P(BinTest, AFlushThatEmptiesManySpansAtOnceGivesEachBackOnce) {
  constexpr unsigned kSpans = 5;
  for (const bool all : {false, true}) {
    BinModel model(GetParam());
    const unsigned slots = model.info().slots;
    model.take(kSpans * slots);
    std::vector<void*> blocks = model.live(), batch;
    std::sort(blocks.begin(), blocks.end());
    // Frees one of each span in turn, so that each span changes its list between two other frees.
    // The first block of each span stays, or does not.
    for (unsigned slot = all ? 0 : 1; slot < slots; ++slot) {
      for (unsigned span = 0; span < kSpans; ++span) batch.push_back(blocks[span * slots + slot]);
    }
    model.give_live(batch);
    model.check();
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(model.stats().spans, all ? 0u : kSpans);
    EXPECT_EQ(model.stats().given, batch.size());
    if (all) continue;
    model.give_live(model.live());
    model.check();
    EXPECT_EQ(model.stats().spans, 0u);
  }
}

TEST_P(BinTest, OneBulkTakeOverManySpansFillsThemAll) {
  BinModel model(GetParam());
  const unsigned wanted = 3 * model.info().slots + 1;
  EXPECT_EQ(model.take(wanted), wanted);
  EXPECT_EQ(model.stats().spans, 4u);
  model.check();
}

TEST_P(BinTest, AnEmptySpanGoesBackUnlessTheBinIsToKeepIt) {
  BinModel model(GetParam());
  const unsigned slots = model.info().slots;
  model.take(2 * slots);
  Random random = test::seeded(7);
  LOAM_TRACE_SEED(random);
  std::vector<void*> first, second;
  Span* a = span_at(reinterpret_cast<uintptr_t>(model.live().front()));
  for (void* p : model.live())
    (span_at(reinterpret_cast<uintptr_t>(p)) == a ? first : second).push_back(p);
  model.give_live(first);
  EXPECT_EQ(model.stats().spans, 1u);
  model.keep_empty(1);
  model.give_live(second);
  EXPECT_EQ(model.stats().spans, 1u);
  // With one slot taken and given again and again, the bin does not use the page heap any more.
  const uint64_t locks = model.pages().mutex().acquisitions();
  for (int i = 0; i < 100; ++i) {
    model.take(1);
    model.give_live(model.live());
  }
  EXPECT_EQ(model.pages().mutex().acquisitions(), locks);
  model.check();
}

// The classes are the first one, some with tails and slots that cross pages, the first ones of
// several lengths, and the last one. Pages of a span count as backed once a slot is taken there.
// The count agrees with the system's, whichever blocks came back.
TEST_P(BinTest, PagesHoldMemoryFromTheirFirstSlotOn) {
  Random random = test::seeded(GetParam());
  LOAM_TRACE_SEED(random);
  BinModel model(GetParam());
  model.pages().keep_falls();
  const SizeClassInfo& info = model.info();
  const size_t slotless_pages = info.pages - Pages::covering(size_t{info.slots} * info.bytes).count;
  const auto backed_bytes = [&] {
    const PageStats pages = model.pages().stats();
    return (pages.used + pages.dirty - Pages(model.stats().unbacked_pages)).bytes();
  };
  model.take(1, true);
  EXPECT_EQ(backed_bytes(), Pages::covering(info.bytes).bytes());
  for (int step = 0; step < 400; ++step) {
    if (model.live().empty() || random.chance(step / 100 % 2 == 0 ? 60 : 40)) {
      model.take(random.magnitude(64), true);
    } else {
      model.give_live(model.pick(random, random.magnitude(64)));
    }
    model.check();
    // A span of which all slots are taken at once counts as backed to its end.
    ASSERT_LE(fake::resident_bytes(), backed_bytes()) << "step " << step;
    if (slotless_pages == 0) {
      ASSERT_EQ(fake::resident_bytes(), backed_bytes()) << "step " << step;
    }
    ASSERT_FALSE(HasFailure()) << "step " << step;
  }
  const size_t resident = fake::resident_bytes();
  model.give_live(std::vector<void*>(model.live()));
  model.compact();
  EXPECT_EQ(model.stats().unbacked_pages, 0u);
  EXPECT_EQ(fake::resident_bytes(), resident) << "nothing was given back to the system";
  if (slotless_pages == 0) {
    EXPECT_EQ(model.pages().stats().dirty.bytes(), resident);
  }
}

TEST_P(BinTest, WhereTheSystemsPagesAreLargerASpanIsBackedAsAWhole) {
  fake::set_granularity(size_t{16} << 10);
  BinModel model(GetParam());
  model.take(1, true);
  EXPECT_EQ(model.stats().unbacked_pages, 0u);
  model.give_live(std::vector<void*>(model.live()));
  model.compact();
  EXPECT_EQ(model.pages().stats().dirty.count, model.info().pages);
}

INSTANTIATE_TEST_SUITE_P(Class, BinTest, testing::Values(1u, 3u, 8u, 9u, 19u, 33u, 48u, 57u, 72u));

TEST(BinSelection, EmptierSpansDrainWhileFullerOnesAreUsed) {
  fake::reset();
  Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  const unsigned size_class = class_for(64);
  BinModel model(size_class);
  model.take(64 * 200);
  // Nine of ten are freed at random, so every span is sparse and hardly one is empty.
  model.give_live(model.pick(random, model.live().size() * 9 / 10));
  const size_t live = model.live().size(), ideal = live / model.info().slots;
  EXPECT_GE(model.stats().spans, 190u);
  // The program continues with as many live bytes as before.
  for (int i = 0; i < 600; ++i) {
    model.take(32);
    model.give_live(model.pick(random, 32));
  }
  EXPECT_EQ(model.live().size(), live);
  EXPECT_LE(model.stats().spans, 3 * ideal) << "sparse spans should have drained";
  model.check();
}

TEST(BinFailures, WhatTheSystemRefusesIsNotHandedOut) {
  fake::reset();
  BinModel model(class_for(1024));
  const unsigned slots = model.info().slots;
  ASSERT_EQ(model.take(slots), slots);
  fake::fail(fake::Call::kCommit);
  while (model.take(100) == 100) {
  }
  const size_t full = model.live().size();
  EXPECT_EQ(full % slots, 0u) << "every slot there was";
  EXPECT_EQ(model.take(1), 0u);
  model.check();
  Random random = test::seeded(1);
  model.give_live(model.pick(random, 5));
  EXPECT_EQ(model.take(9), 5u) << "what is there is given, and put at the front";
  model.check();
  fake::clear_failures();
  EXPECT_EQ(model.take(9), 9u);
  model.check();
}

// ---- misuse -----------------------------------------------------------------------------------

class BinMisuse : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    fake::reset();
    model.take(3);
    slot = static_cast<char*>(model.live().front());
  }
  void TearDown() override { set_corruption_policy(CorruptionPolicy::kAbort); }

  /// In reporting mode `pointers` are given. Each mistake is one line, and the bin is not damaged.
  void expect_report(const std::vector<void*>& pointers, const char* what) {
    set_corruption_policy(CorruptionPolicy::kReport);
    fake::take_errors();
    const BinStats before = model.stats();
    model.give(pointers);
    const std::string errors = fake::take_errors();
    EXPECT_NE(errors.find(what), std::string::npos) << errors;
    EXPECT_EQ(model.stats().free_slots, before.free_slots);
    EXPECT_EQ(model.stats().given, before.given);
    model.check();
  }

  BinModel model{class_for(64)};
  char* slot = nullptr;
};
using BinMisuseDeathTest = BinMisuse;

TEST_F(BinMisuseDeathTest, ADoubleFreeEndsTheProcess) {
  EXPECT_DEATH(
      {
        model.give({slot});
        model.give({slot});
      },
      "loam: double free .address 0x");
}

TEST_F(BinMisuseDeathTest, AnInteriorAForeignAndAWildPointerEndTheProcess) {
  int local = 0;
  EXPECT_DEATH(model.give({slot + 16}), "loam: free of a pointer into the middle");
  EXPECT_DEATH(model.give({&local}), "loam: free of .*no block");
  EXPECT_DEATH(model.give({reinterpret_cast<void*>(0x123456789000)}), "loam: free of .*no block");
}

TEST_F(BinMisuse, ADoubleFreeIsReportedAndDropped) {
  void* spare = model.live()[1];
  model.give_live({spare});
  expect_report({spare}, "double free");
}

TEST_F(BinMisuse, TheSamePointerTwiceInOneBatchCountsOnce) {
  set_corruption_policy(CorruptionPolicy::kReport);
  fake::take_errors();
  void* spare = model.live()[1];
  const size_t free_slots = model.stats().free_slots;
  model.give({spare, spare});
  EXPECT_NE(fake::take_errors().find("double free"), std::string::npos);
  EXPECT_EQ(model.stats().free_slots, free_slots + 1);
}

size_t reports_of(const std::string& errors, const std::string& what) {
  size_t n = 0;
  for (size_t at = errors.find(what); at != std::string::npos; at = errors.find(what, at + 1)) ++n;
  return n;
}

// Few slots are marked one by one, more by whole words.
TEST_F(BinMisuse, InARunOfNeighboursOnlyTheBadOnesAreDropped) {
  set_corruption_policy(CorruptionPolicy::kReport);
  for (const int first : {69, 40}) {
    for (const bool downwards : {false, true}) {
      BinModel tailed(class_for(48));  // 85 slots of 48 bytes leave 16
      for (int i = 0; i < 85; ++i) tailed.take(1);
      char* base =
          static_cast<char*>(*std::min_element(tailed.live().begin(), tailed.live().end()));
      tailed.give({base + 70 * 48, base + 72 * 48});
      fake::take_errors();
      // Live slots and two free ones, then the span's tail and the next span, which no bin owns.
      std::vector<void*> run;
      for (int slot = first; slot < 74; ++slot) run.push_back(base + slot * 48);
      std::vector<void*> beyond;
      for (int slot = first + 14; slot < 87; ++slot) {
        if (slot >= 74) beyond.push_back(base + slot * 48);
      }
      if (downwards) std::reverse(run.begin(), run.end());
      if (downwards) std::reverse(beyond.begin(), beyond.end());
      tailed.give(run);
      const std::string twice = fake::take_errors();
      EXPECT_EQ(tailed.stats().free_slots, run.size());
      for (const int slot : {70, 72}) {
        std::ostringstream address;
        address << static_cast<void*>(base + slot * 48);
        EXPECT_NE(twice.find(address.str()), std::string::npos) << twice;
      }
      EXPECT_NE(twice.find("double free"), std::string::npos);
      tailed.give(beyond);
      EXPECT_NE(fake::take_errors().find("into the middle"), std::string::npos);
      EXPECT_EQ(tailed.stats().free_slots, run.size() + beyond.size() - 2);
      Lock lock(tailed.bin().mutex());
      EXPECT_TRUE(tailed.bin().is_valid_locked(class_for(48)));
    }
  }
}

// A structure's blocks, freed in another order than they were allocated.
TEST_F(BinMisuse, AmongPointersOfOneSpanOnlyTheBadOnesAreDropped) {
  set_corruption_policy(CorruptionPolicy::kReport);
  for (const bool downwards : {false, true}) {
    BinModel tailed(class_for(48));  // 85 slots of 48 bytes leave 16
    tailed.take(2 * 85);
    std::vector<void*> live = tailed.live();
    std::sort(live.begin(), live.end());
    char* const one = static_cast<char*>(live.front());
    char* const other = static_cast<char*>(live.back()) - 84 * 48;
    // Good pointers beside each kind of bad one: given twice, inside a block, of another region,
    // behind the last slot.
    std::vector<void*> batch;
    for (const int slot : {3, 2, 5, 4, 7, 6, 4, 9, 8}) batch.push_back(one + slot * 48);
    batch.push_back(one + 10 * 48 + 16);
    for (const int slot : {11, 10, 13, 12}) batch.push_back(one + slot * 48);
    batch.push_back(one + 14 * 48 + 4 * kRegionBytes);  // 4 GiB: the same in 32 bits
    for (const int slot : {81, 80, 84, 83, 85, 82}) batch.push_back(one + slot * 48);
    for (const int slot : {3, 2, 62, 66, 63, 65}) batch.push_back(other + slot * 48);
    if (downwards) std::reverse(batch.begin(), batch.end());
    fake::take_errors();
    tailed.give(batch);
    const std::string errors = fake::take_errors();
    EXPECT_EQ(reports_of(errors, "double free"), 1u) << errors;
    EXPECT_EQ(reports_of(errors, "into the middle"), 2u) << errors;
    EXPECT_EQ(reports_of(errors, "no block"), 1u) << errors;
    EXPECT_EQ(tailed.stats().free_slots, batch.size() - 4);
    Lock lock(tailed.bin().mutex());
    EXPECT_TRUE(tailed.bin().is_valid_locked(class_for(48)));
  }
}

TEST_F(BinMisuse, AmongScatteredPointersOnlyTheBadOnesAreDropped) {
  set_corruption_policy(CorruptionPolicy::kReport);
  for (const bool downwards : {false, true}) {
    BinModel tailed(class_for(48));  // 85 slots of 48 bytes leave 16
    tailed.take(2 * 85);
    std::vector<void*> live = tailed.live();
    std::sort(live.begin(), live.end());
    char* const one = static_cast<char*>(live.front());
    char* const other = static_cast<char*>(live.back()) - 84 * 48;
    ASSERT_NE(span_at(reinterpret_cast<uintptr_t>(one)),
              span_at(reinterpret_cast<uintptr_t>(other)));
    int local = 0;
    // Several blocks of one span in turn, several of the other, then one of each. The bad ones are
    // between them and at the ends.
    std::vector<void*> batch = {
        one + 85 * 48, one + 3 * 48,   one + 70 * 48,   one + 3 * 48,    one + 85 * 48,
        one + 9 * 48,  one + 8,        one + 84 * 48,   other + 85 * 48, other + 2 * 48,
        &local,        other + 8 * 48, other + 8 * 48,  other + 4 * 48,  one + 5 * 48,
        other,         one + 7 * 48,   other + 64 * 48, one + 9 * 48,    other + 50 * 48 + 16,
        nullptr,       one + 64 * 48,  other + 85 * 48};
    if (downwards) std::reverse(batch.begin(), batch.end());
    fake::take_errors();
    tailed.give(batch);
    const std::string errors = fake::take_errors();
    EXPECT_EQ(reports_of(errors, "double free"), 3u) << errors;
    EXPECT_EQ(reports_of(errors, "into the middle"), 6u) << errors;
    EXPECT_EQ(reports_of(errors, "no block"), 2u) << errors;
    EXPECT_EQ(tailed.stats().free_slots, 12u);
    Lock lock(tailed.bin().mutex());
    EXPECT_TRUE(tailed.bin().is_valid_locked(class_for(48)));
  }
}

TEST_F(BinMisuse, InteriorForeignAndNullSpansAreReportedAndDropped) {
  int local = 0;
  expect_report({slot + 16}, "into the middle");
  expect_report({slot + 48}, "into the middle");
  expect_report({&local}, "no block");
  expect_report({nullptr}, "no block");
}

TEST_F(BinMisuse, ThePieceBehindTheLastSlotIsNoSlot) {
  BinModel tailed(class_for(48));  // 85 slots of 48 bytes leave 16
  tailed.take(1);
  char* base = static_cast<char*>(tailed.live().front());
  set_corruption_policy(CorruptionPolicy::kReport);
  fake::take_errors();
  tailed.give({base + 85 * 48});
  EXPECT_NE(fake::take_errors().find("into the middle"), std::string::npos);
  tailed.check();
}

TEST_F(BinMisuse, ABlockOfAnotherClassIsReportedAndDropped) {
  BinModel other(class_for(1000));
  other.take(1);
  expect_report({other.live().front()}, "no block");
}

TEST_F(BinMisuse, AGoodPointerBesideABadOneIsStillFreed) {
  set_corruption_policy(CorruptionPolicy::kReport);
  const size_t free_slots = model.stats().free_slots;
  void* good = model.live()[2];
  model.give({slot + 16, good, slot + 32});
  EXPECT_EQ(model.stats().free_slots, free_slots + 1);
}

TEST_F(BinMisuse, AFreeIntoASpanThatWentBackIsReported) {
  std::vector<void*> all = model.live();
  void* gone = all.front();
  model.give_live(all);
  model.compact();
  ASSERT_EQ(model.stats().spans, 0u);
  expect_report({gone}, "free already");
}

}  // namespace
}  // namespace loam
