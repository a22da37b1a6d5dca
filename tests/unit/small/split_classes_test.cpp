// Classes between the fixed ones: their shapes, when they are requested, and which requests go to
// them.
#include "small/split_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "map/records.h"
#include "random.h"
#include "small/small_heap.h"

namespace loam {
namespace {

using test::Random;

TEST(SplitClasses, ShapesFitASpansRecord) {
  for (size_t bytes = kFineLimit + 16; bytes <= kLargestSmall; bytes += 16) {
    const SizeClassInfo info = shape_of(bytes);
    const size_t span = Pages(info.pages).bytes();
    ASSERT_EQ(info.bytes, bytes);
    ASSERT_GE(info.slots, 4u) << bytes;
    ASSERT_LE(info.slots, kMaxSlots);
    ASSERT_LE(info.pages, kMaxSpanPages);
    ASSERT_EQ(info.slots, span / bytes);
    // Never much worse than the fixed classes, whose slot and tail are off by at most half a 64th.
    ASSERT_LE(span % bytes * 20, span) << bytes;
    for (unsigned slot = 0; slot < info.slots; ++slot) {
      for (const size_t offset : {slot * bytes, slot * bytes + 1, (slot + 1) * bytes - 1}) {
        ASSERT_EQ((offset * info.reciprocal) >> 32, slot) << bytes << " at " << offset;
        ASSERT_EQ(begins_slot(info, offset), offset % bytes == 0);
      }
      // small/bin.cpp computes it in this way.
      ASSERT_EQ((slot * info.list_scale - 1) >> 24, slot == 0 ? 0xffu : slot * 8 / info.slots)
          << bytes;
    }
  }
}

// Takes all merged classes apart.
std::unique_ptr<SplitClasses> separated() {
  auto classes = std::make_unique<SplitClasses>();
  for (unsigned c = kSizeClassCount - 1; c > class_for(kMergedFrom); --c) {
    for (unsigned apart = kMergedClasses / 2; apart != 0; apart /= 2) {
      if (classes->has_merged(c, apart)) classes->separate(c, c - apart);
    }
  }
  return classes;
}

TEST(SplitClasses, ALookSeesTheLargestRequestOfAWindow) {
  const auto classes = std::make_unique<SplitClasses>();
  const unsigned c = class_for(4400), other = class_for(2000);
  for (unsigned round = 0; round < 3; ++round) {
    const size_t largest = 4370 + 40 * round;
    for (uint32_t i = 1; i <= SplitClasses::kWindow; ++i) {
      ASSERT_EQ(classes->note(c, i == 3 ? largest : 4353 + i % 8), i % SplitClasses::kLook == 0);
      ASSERT_EQ(classes->note(other, 1999), i % SplitClasses::kLook == 0);
      if (i % SplitClasses::kLook != 0) continue;
      const SplitClasses::Requests seen = classes->look(c), others = classes->look(other);
      EXPECT_EQ(seen.largest, round_up(largest, 16));
      EXPECT_EQ(others.largest, 2000u);
      EXPECT_EQ(seen.is_first, round == 0);
      EXPECT_EQ(seen.is_window, i == SplitClasses::kWindow);
    }
  }
}

TEST(SplitClasses, FourAndThreeNeighboursBeginAsOne) {
  const SplitClasses classes;
  for (size_t bytes = kFineLimit + 1; bytes <= kLargestSmall; ++bytes) {
    const size_t fixed = kSizeClasses[class_for(bytes)].bytes;
    const size_t power = std::bit_ceil(bytes);
    // The slots of half a doubling, and of all but the last eighth.
    const size_t half = power - power / 4 - 64, rest = power - power / 16 - 64;
    ASSERT_EQ(classes.info(classes.class_for(bytes)).bytes, bytes <= kMergedFrom ? fixed
                                                            : bytes <= half      ? half
                                                            : bytes <= rest      ? rest
                                                                                 : power)
        << bytes;
  }
}

TEST(SplitClasses, RequestsGoToTheLowerOfTwoSeparatedClasses) {
  SplitClasses classes;
  const unsigned whole = class_for(6080), lower = class_for(5056);
  ASSERT_TRUE(classes.has_merged(whole, 2));
  classes.separate(whole, lower);
  EXPECT_FALSE(classes.has_merged(whole, 2));
  EXPECT_TRUE(classes.has_merged(whole, 1));
  EXPECT_TRUE(classes.has_merged(lower, 1));
  for (size_t bytes = 4097; bytes <= 6080; ++bytes)
    ASSERT_EQ(classes.class_for(bytes), bytes <= 5056 ? lower : whole) << bytes;
  EXPECT_EQ(classes.class_for(4096), class_for(4096));
  classes.separate(lower, lower - 1);
  EXPECT_FALSE(classes.has_merged(lower, 1));
  EXPECT_EQ(classes.class_for(4544), lower - 1);
  EXPECT_EQ(classes.class_for(4545), lower);
  // A class between the fixed ones stays apart.
  ASSERT_TRUE(classes.add(whole, shape_of(5300)));
  classes.separate(whole, whole - 1);
  EXPECT_EQ(classes.class_for(5300), kMixedClass + 1);
  EXPECT_EQ(classes.class_for(5568), whole - 1);
}

TEST(SplitClasses, AllSeparatedAreTheFixedClasses) {
  const auto classes = separated();
  for (size_t bytes = kFineLimit + 1; bytes <= kLargestSmall; ++bytes)
    ASSERT_EQ(classes->class_for(bytes), class_for(bytes)) << bytes;
}

TEST(SplitClasses, RequestsUpToItsSizeGoToTheFinerClass) {
  const auto classes = separated();
  const unsigned whole = class_for(4400);
  EXPECT_EQ(classes->end(), kMixedClass + 1);
  ASSERT_TRUE(classes->add(whole, shape_of(4368)));
  const unsigned finer = kMixedClass + 1;
  EXPECT_EQ(classes->end(), finer + 1);
  EXPECT_EQ(classes->info(finer).bytes, 4368u);
  for (size_t bytes = kFineLimit + 1; bytes <= kLargestSmall; ++bytes) {
    ASSERT_EQ(classes->class_for(bytes), bytes > 4096 && bytes <= 4368 ? finer : class_for(bytes))
        << bytes;
  }
  // The same class once more, and a size that is not in the class.
  EXPECT_FALSE(classes->add(whole, shape_of(4368)));
  EXPECT_FALSE(classes->add(whole, shape_of(4352)));
  EXPECT_FALSE(classes->add(whole, shape_of(4624)));
  // The rest of the class above the split, and a split of a split.
  ASSERT_TRUE(classes->add(whole, shape_of(4512)));
  EXPECT_EQ(classes->class_for(4368), finer);
  EXPECT_EQ(classes->class_for(4369), finer + 1);
  EXPECT_EQ(classes->class_for(4512), finer + 1);
  EXPECT_EQ(classes->class_for(4513), whole);
  ASSERT_TRUE(classes->add(finer + 1, shape_of(4400)));
  EXPECT_EQ(classes->class_for(4400), finer + 2);
  EXPECT_EQ(classes->class_for(4401), finer + 1);
}

TEST(SplitClasses, NoSizeLosesMoreThanATwentyFourth) {
  // Lost bytes as a share of a slot's, which include the span's tail. The size has a class of its
  // own, or stays in the fixed one if a class would save too little.
  const auto cost = [](const SizeClassInfo& info) {
    return static_cast<double>(Pages(info.pages).bytes()) / static_cast<double>(info.slots);
  };
  double worst = 0, sum = 0, worst_fixed = 0;
  unsigned sizes = 0;
  for (size_t bytes = kFineLimit + 16; bytes <= kLargestSmall; bytes += 16, ++sizes) {
    const double fixed = cost(kSizeClasses[class_for(bytes)]), own = cost(shape_of(bytes));
    const double least = own > fixed - fixed / kLeastSavedShare ? fixed : own;
    worst = std::max(worst, least / static_cast<double>(bytes));
    worst_fixed = std::max(worst_fixed, fixed / static_cast<double>(bytes));
    sum += least / static_cast<double>(bytes);
  }
  EXPECT_LE(worst, 1 + 1.0 / 24);
  EXPECT_LE(sum / sizes, 1.012);
  EXPECT_GT(worst_fixed, 1.08) << "what it is for";
}

TEST(SplitClasses, AreFewAndEveryOneStaysTheOneOfItsSize) {
  const auto classes = std::make_unique<SplitClasses>();
  Random random = test::seeded(1);
  unsigned added = 0;
  for (unsigned i = 0; i < 1000; ++i) {
    const size_t bytes =
        16 * (kFineLimit / 16 + 1 + random.below((kLargestSmall - kFineLimit) / 16));
    const unsigned from = classes->class_for(bytes);
    const size_t from_bytes = classes->info(from).bytes;
    ASSERT_GE(from_bytes, bytes);
    const bool adds = added < SplitClasses::kMost && from_bytes != bytes;
    ASSERT_EQ(classes->add(from, shape_of(bytes)), adds) << bytes;
    added += adds;
    ASSERT_EQ(classes->end(), kMixedClass + 1 + added);
    for (unsigned c = kMixedClass + 1; c < classes->end(); ++c)
      ASSERT_EQ(classes->class_for(classes->info(c).bytes), c);
  }
  EXPECT_EQ(added, SplitClasses::kMost);
}

}  // namespace
}  // namespace loam
