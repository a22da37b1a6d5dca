// The table of size classes: recomputed by its generator, and the look-ups against a linear search.
#include "small/size_classes.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "map/records.h"
#include "this_process.h"

namespace loam {
namespace {

unsigned linear_class(size_t bytes) {
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    if (kSizeClasses[c].bytes >= bytes) return c;
  }
  return 0;
}

TEST(SizeClasses, TheTableIsWhatItsGeneratorWrites) {
  if (!test::kHasShell) GTEST_SKIP() << "there is no shell for the generator";
  namespace fs = std::filesystem;
  const fs::path root = fs::path(__FILE__).parent_path().parent_path().parent_path().parent_path();
  const fs::path script = root / "tools/gen_size_classes.py";
  ASSERT_TRUE(fs::exists(script)) << script;
  EXPECT_EQ(std::system(("python3 '" + script.string() + "' --check").c_str()), 0);
}

TEST(SizeClasses, EverySizeGetsTheSmallestClassThatHoldsIt) {
  for (size_t bytes = 1; bytes <= kLargestSmall; ++bytes) {
    ASSERT_EQ(class_for(bytes), linear_class(bytes)) << bytes << " bytes";
    if (bytes <= kFineLimit) {
      ASSERT_EQ(fine_class(bytes), linear_class(bytes)) << bytes << " bytes";
    }
  }
  EXPECT_EQ(class_for(0), 1u);
  EXPECT_EQ(fine_class(0), 1u);
}

TEST(SizeClasses, WhereASlotBeginsIsFoundWithoutADivision) {
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const SizeClassInfo& info = kSizeClasses[c];
    for (size_t offset = 0; offset < info.pages * kPageBytes; ++offset) {
      const bool begins = offset % info.bytes == 0 && offset / info.bytes < info.slots;
      ASSERT_EQ(begins_slot(info, offset), begins) << info.bytes << " " << offset;
    }
  }
}

TEST(SizeClasses, AnAlignedRequestGetsTheSmallestClassWhoseSlotsAreAllAligned) {
  for (size_t alignment = 16; alignment <= 2 * kPageBytes; alignment *= 2) {
    for (size_t bytes = 0; bytes <= kLargestSmall + 64; bytes += bytes < 2048 ? 1 : 61) {
      unsigned expected = 0;
      for (unsigned c = 1; c < kSizeClassCount && expected == 0; ++c) {
        const size_t slot = kSizeClasses[c].bytes;
        if (slot >= bytes && slot % alignment == 0 && alignment <= kPageBytes) expected = c;
      }
      ASSERT_EQ(class_for_aligned(bytes, alignment), expected) << bytes << " at " << alignment;
    }
  }
}

TEST(SizeClasses, ClassesRiseAndRoundingCostsAtMostANinth) {
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const SizeClassInfo& info = kSizeClasses[c];
    EXPECT_EQ(info.bytes % 16, 0u);
    if (c == 1) continue;
    const size_t below = kSizeClasses[c - 1].bytes;
    ASSERT_GT(info.bytes, below);
    if (info.bytes > 128) {
      EXPECT_LE(info.bytes - (below + 1), info.bytes / 9.0 + 1) << info.bytes;
    } else {
      EXPECT_EQ(info.bytes, below + 16);
    }
  }
}

TEST(SizeClasses, SpansFitTheirRecord) {
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const SizeClassInfo& info = kSizeClasses[c];
    const size_t span = Pages(info.pages).bytes();
    EXPECT_LE(info.slots, kMaxSlots);
    EXPECT_LE(info.pages, kMaxSpanPages);
    EXPECT_EQ(info.slots, span / info.bytes);
    EXPECT_LE(static_cast<double>(span % info.bytes), 0.032 * static_cast<double>(span))
        << info.bytes;
  }
}

TEST(SizeClasses, TheReciprocalDividesEveryOffsetOfASpanExactly) {
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const SizeClassInfo& info = kSizeClasses[c];
    for (size_t offset = 0; offset < Pages(info.pages).bytes(); ++offset) {
      ASSERT_EQ((offset * info.reciprocal) >> 32, offset / info.bytes)
          << info.bytes << " at " << offset;
      // PrivateHeap::push() recognises the start of a slot by this.
      ASSERT_EQ(static_cast<uint32_t>(offset * info.reciprocal) < info.reciprocal,
                offset % info.bytes == 0)
          << info.bytes << " at " << offset;
    }
  }
}

}  // namespace
}  // namespace loam
