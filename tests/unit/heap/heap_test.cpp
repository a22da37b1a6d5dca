// The whole heap on the real system: every kind of request over a grid of sizes, with its content.
#include "heap/heap.h"
#include "heap/equations.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "heap/blocks.h"
#include "pages/huge_map.h"
#include "pages/page_heap.h"

namespace loam {
namespace {

using test::Blocks;
using test::Random;
using test::totals;

/// Sizes around every border: classes, pages, large runs, mappings of their own.
std::vector<size_t> size_grid() {
  std::vector<size_t> sizes;
  for (size_t n = 0; n <= 300; ++n) sizes.push_back(n);
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    for (const size_t n : {kSizeClasses[c].bytes - 1u, kSizeClasses[c].bytes + 0u})
      sizes.push_back(n);
  }
  for (size_t n = 1024; n <= (size_t{64} << 20); n *= 2) {
    for (const size_t m : {n - 32, n - 1, n, n + 1, n + n / 3}) sizes.push_back(m);
  }
  for (const size_t limit : {kFineLimit, kLargestSmall, kMaxRun.bytes()}) {
    for (const size_t n : {limit - 1, limit, limit + 1}) sizes.push_back(n);
  }
  return sizes;
}

class HeapTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(heap::is_valid()); }
};

TEST_F(HeapTest, EverySizeIsServedAlignedUsableAndApart) {
  Blocks blocks;
  for (const size_t bytes : size_grid()) {
    void* block = heap::allocate(bytes);
    blocks.add(block, bytes);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0u);
    // All bytes that are reported as usable can be used.
    const size_t usable = heap::usable_size(block);
    ASSERT_GE(usable, std::max<size_t>(bytes, 1));
    if (usable > bytes) {
      static_cast<char*>(block)[usable - 1] = 1;
    }
    ASSERT_FALSE(HasFailure()) << bytes;
  }
}

TEST_F(HeapTest, RoundingIsSmallAboveTheSmallSizesToo) {
  // Removes freed runs, because a kept run may be a sixteenth longer than the request that it
  // serves.
  static_cast<void>(heap::compact());
  std::vector<void*> blocks;
  for (const size_t bytes : size_grid()) {
    if (bytes < 128) continue;
    blocks.push_back(heap::allocate(bytes));
    const size_t usable = heap::usable_size(blocks.back());
    // Few blocks above 4 KiB share a class with their neighbours (decision 98).
    const size_t most = bytes > kLargestSmall ? kPageBytes
                        : bytes > kFineLimit  ? bytes / 2
                                              : bytes / 8;
    EXPECT_LE(usable - bytes, most) << bytes;
  }
  for (void* block : blocks) heap::free(block);
}

TEST_F(HeapTest, ZeroedBlocksAreZeroWhateverLayThereBefore) {
  for (int round = 0; round < 3; ++round) {
    Blocks dirt;
    for (const size_t bytes : size_grid()) {
      if (bytes <= (size_t{2} << 20)) dirt.add(heap::allocate(bytes), bytes);
    }
    dirt.free_all();
    std::vector<void*> blocks;
    for (const size_t bytes : size_grid()) {
      unsigned char* block = static_cast<unsigned char*>(heap::allocate_zeroed(bytes));
      ASSERT_NE(block, nullptr);
      const size_t step = bytes > Blocks::kWhole ? kPageBytes : 1;
      for (size_t i = 0; i < bytes; i += step) ASSERT_EQ(block[i], 0) << bytes << " at " << i;
      if (bytes != 0) {
        ASSERT_EQ(block[bytes - 1], 0) << bytes;
      }
      if (bytes <= (size_t{2} << 20)) memset(block, 0xee, bytes);
      blocks.push_back(block);
    }
    for (void* block : blocks) heap::free(block);
  }
}

TEST_F(HeapTest, EveryAlignmentIsKeptForEverySize) {
  for (size_t alignment = 1; alignment <= (size_t{4} << 30); alignment *= 2) {
    Blocks blocks;
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{24}, size_t{100}, size_t{1000},
                               size_t{5000}, size_t{40'000}, size_t{3} << 20, size_t{40} << 20}) {
      for (int i = 0; i < (bytes < (size_t{1} << 20) ? 3 : 1); ++i) {
        void* block = heap::allocate_aligned(alignment, bytes);
        ASSERT_NE(block, nullptr) << bytes << " at " << alignment;
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u)
            << bytes << " at " << alignment;
        blocks.add(block, bytes);
      }
    }
    ASSERT_FALSE(HasFailure()) << alignment;
  }
}

TEST_F(HeapTest, ReallocationKeepsTheContentFromEverySizeToEverySize) {
  const size_t sizes[] = {1,        16,       100,     700,     1025,          9000,
                          32'768,   32'769,   70'000,  1 << 20, (2 << 20) + 5, 5 << 20,
                          20 << 20, 33 << 20, 40 << 20};
  for (const size_t from : sizes) {
    for (const size_t to : sizes) {
      unsigned char* block = static_cast<unsigned char*>(heap::allocate(from));
      ASSERT_NE(block, nullptr);
      Blocks::mark(block, from, 0x5a);
      unsigned char* moved = static_cast<unsigned char*>(heap::reallocate(block, to));
      ASSERT_NE(moved, nullptr);
      ASSERT_GE(heap::usable_size(moved), to);
      const size_t kept = std::min(from, to);
      const size_t step = from <= Blocks::kWhole ? 1 : Blocks::kStep;
      for (size_t i = 0; i < kept; i += step)
        ASSERT_EQ(moved[i], 0x5a) << from << " to " << to << " at " << i;
      moved[to - 1] = 1;
      heap::free(moved);
    }
  }
}

TEST_F(HeapTest, AShrunkBlockGivesMemoryBack) {
  // A block that stays in place although almost none of it is wanted any more is a leak.
  for (const size_t from : {size_t{4096}, size_t{32'768}, size_t{1} << 20, size_t{64} << 20}) {
    for (const size_t to : {from / 2, from / 16, size_t{16}}) {
      void* block = heap::reallocate(heap::allocate(from), to);
      EXPECT_LE(heap::usable_size(block), std::max<size_t>(2 * to + 64, kPageBytes))
          << from << " to " << to;
      heap::free(block);
    }
  }
}

TEST_F(HeapTest, AGrowingLargeBlockIsNotCopiedEachTime) {
  const size_t step = 64 << 10;
  size_t bytes = step;
  void* block = heap::allocate(bytes);
  int copies = 0;
  for (; bytes <= kMaxRun.bytes(); bytes += step) {  // above this size a move is no copy
    void* grown = heap::reallocate(block, bytes);
    copies += grown != block;
    block = grown;
  }
  EXPECT_LE(copies, 60) << "of 512 steps";
  heap::free(block);
}

TEST_F(HeapTest, TheRecordsOfWhatIsFreedGoBackAsWell) {
  // For spans of one page: a record of 64 bytes for each.
  constexpr size_t kBlocks = 600'000, kBytes = 96;
  std::vector<void*> blocks(kBlocks);
  const auto metadata_bytes = [] { return totals().metadata_bytes; };
  heap::compact();
  const size_t before = metadata_bytes();
  for (void*& block : blocks) block = heap::allocate(kBytes);
  const size_t full = metadata_bytes();
  constexpr size_t kRecords = kBlocks / (kPageBytes / kBytes) * sizeof(Span);
  EXPECT_GT(full, before + kRecords / 2) << "others may be free on pages of used ones";
  const uint64_t gone = page_heap.stats().purged_pages;
  for (void* block : blocks) heap::free(block);
  const Pages went(page_heap.stats().purged_pages - gone);  // by the clock, if frees take long
  const heap::CompactResult result = heap::compact();
  EXPECT_GT(went.bytes() + result.released_bytes, kBlocks * kBytes);
  EXPECT_LT(metadata_bytes(), full - kRecords / 2);
  EXPECT_TRUE(heap::is_valid());
  for (void*& block : blocks) block = heap::allocate(kBytes);
  EXPECT_LE(metadata_bytes(), full + 10 * kPageBytes);
  for (void* block : blocks) heap::free(block);
  EXPECT_TRUE(heap::is_valid());
}

TEST_F(HeapTest, ABlockThatGrowsBySmallStepsMovesSeldom) {
  size_t bytes = 256;
  void* block = heap::allocate(bytes);
  int moves = 0;
  for (; bytes <= kLargestSmall; bytes += 8) {
    void* grown = heap::reallocate(block, bytes);
    ASSERT_GE(heap::usable_size(grown), bytes);
    // Room to grow must not give a small block pages of its own, which blocks of its class do not
    // have.
    const size_t room = bytes + bytes / 8;
    ASSERT_LE(heap::usable_size(grown),
              std::min(room + (room > kMergedFrom ? room / 2 : room / 8) + 32, kLargestSmall));
    moves += grown != block;
    block = grown;
  }
  heap::free(block);
  EXPECT_LE(moves, 42)
      << "of 4,065 steps: an eighth more each, where a class is a sixteenth longer";
}

TEST_F(HeapTest, ABlockThatIsCutGivesItsRoomBack) {
  // Small steps, and the doubling of a container.
  for (const bool doubles : {false, true}) {
    for (const size_t length : {900u, 3'000u, 7'000u, 20'000u}) {
      void* block = heap::allocate(64);
      for (size_t bytes = 64; bytes < length;) {
        bytes = doubles ? 2 * bytes : bytes + 40;
        block = heap::reallocate(block, bytes);
      }
      memset(block, 7, length - 40);
      block = heap::reallocate(block, length - 40);
      EXPECT_TRUE(Blocks::marked(block, length - 40, 7));
      void* plain = heap::allocate(length - 40);
      EXPECT_LE(heap::usable_size(block), std::max(heap::usable_size(plain), length + 64));
      heap::free(plain);
      // Whoever has grown within it since keeps what it has.
      void* const cut = block;
      const size_t usable = heap::usable_size(cut);
      block = heap::reallocate(block, usable - 1);
      EXPECT_EQ(block, cut);
      heap::free(block);
    }
  }
}

TEST_F(HeapTest, ABlockThatGrowsByAnEighthGetsWhatItAsksFor) {
  for (const size_t from : {size_t{64}, size_t{512}, size_t{4096}, size_t{16'384}}) {
    for (const size_t to : {from + from / 8, from + from / 2, 2 * from}) {
      void* plain = heap::allocate(to);
      void* grown = heap::reallocate(heap::allocate(from), to);
      EXPECT_EQ(heap::usable_size(grown), heap::usable_size(plain)) << from << " to " << to;
      heap::free(plain);
      heap::free(grown);
    }
  }
}

TEST_F(HeapTest, TryResizeNeverMovesAndSaysWhetherItFits) {
  void* small = heap::allocate(100);
  const size_t usable = heap::usable_size(small);
  EXPECT_TRUE(heap::try_resize(small, usable));
  EXPECT_FALSE(heap::try_resize(small, usable + 1));
  heap::free(small);

  char* large = static_cast<char*>(heap::allocate(100'000));
  memset(large, 7, 100'000);
  EXPECT_TRUE(heap::try_resize(large, 50'000));
  EXPECT_LE(heap::usable_size(large), 53'248u);
  EXPECT_TRUE(heap::try_resize(large, 100'000)) << "what was just given up is still free";
  EXPECT_EQ(large[49'999], 7);
  EXPECT_FALSE(heap::try_resize(large, size_t{1} << 40));
  heap::free(large);

  char* huge = static_cast<char*>(heap::allocate(size_t{64} << 20));
  EXPECT_TRUE(heap::try_resize(huge, size_t{48} << 20));
  EXPECT_EQ(heap::usable_size(huge), size_t{48} << 20);
  huge[(size_t{48} << 20) - 1] = 1;
  heap::free(huge);
}

TEST_F(HeapTest, WhatCannotBeHadIsANullAndErrnoSaysSo) {
  for (const size_t bytes :
       {SIZE_MAX, SIZE_MAX / 2, static_cast<size_t>(PTRDIFF_MAX), size_t{1} << 60}) {
    errno = 0;
    EXPECT_EQ(heap::allocate(bytes), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(heap::allocate_zeroed(bytes), nullptr);
    EXPECT_EQ(heap::allocate_aligned(4096, bytes), nullptr);
    void* block = heap::allocate(100);
    memset(block, 9, 100);
    EXPECT_EQ(heap::reallocate(block, bytes), nullptr);
    EXPECT_TRUE(Blocks::marked(block, 100, 9)) << "a failed realloc must leave the block";
    heap::free(block);
    void* large = heap::allocate(1 << 20);
    EXPECT_EQ(heap::reallocate(large, bytes), nullptr);
    heap::free(large);
    void* huge = heap::allocate(size_t{64} << 20);
    EXPECT_EQ(heap::reallocate(huge, bytes), nullptr);
    EXPECT_EQ(heap::usable_size(huge), size_t{64} << 20);
    heap::free(huge);
  }
}

TEST_F(HeapTest, FreeKeepsErrno) {
  for (const size_t bytes : {size_t{10}, size_t{100'000}, size_t{64} << 20}) {
    void* block = heap::allocate(bytes);
    errno = 1234;
    heap::free(block);
    EXPECT_EQ(errno, 1234) << bytes;
  }
  errno = 1234;
  heap::free(nullptr);
  EXPECT_EQ(errno, 1234);
}

TEST_F(HeapTest, WhatIsNoBlockHasNoUsableBytes) {
  int local = 0;
  static int global = 0;
  char* large = static_cast<char*>(heap::allocate(1 << 20));
  char* huge = static_cast<char*>(heap::allocate(size_t{64} << 20));
  const std::vector<const void*> nothing = {nullptr,
                                            &local,
                                            &global,
                                            large + kPageBytes,
                                            large + 1,
                                            huge + kPageBytes,
                                            huge + 16,
                                            reinterpret_cast<void*>(UINTPTR_MAX),
                                            reinterpret_cast<void*>(uintptr_t{1} << 47)};
  for (const void* pointer : nothing) EXPECT_EQ(heap::usable_size(pointer), 0u) << pointer;
  heap::free(large);
  heap::free(huge);
  EXPECT_EQ(heap::usable_size(large), 0u);
  EXPECT_EQ(heap::usable_size(huge), 0u);
}

TEST_F(HeapTest, RandomWorkKeepsEveryByte) {
  Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  Blocks blocks;
  const auto random_size = [&] {
    return random.chance(90) ? random.magnitude(4096)
                             : random.magnitude(random.chance(90) ? 1 << 20 : 1 << 26);
  };
  for (int step = 0; step < 40'000; ++step) {
    const unsigned what = random.between(0, 99);
    const bool grow = step / 5000 % 2 == 0;
    if (blocks.empty() || what < (grow ? 50u : 30u)) {
      const size_t bytes = random_size();
      if (random.chance(10)) {
        const size_t alignment = size_t{1} << random.below(22);
        blocks.add(heap::allocate_aligned(alignment, bytes), bytes);
      } else {
        blocks.add(heap::allocate(bytes), bytes);
      }
    } else if (what < 85) {
      blocks.free(blocks.random(random));
    } else {
      void* block = blocks.random(random);
      const size_t before = blocks.bytes(block), bytes = random_size();
      const unsigned char fill = blocks.fill(block);
      blocks.check(block);
      unsigned char* moved = static_cast<unsigned char*>(heap::reallocate(block, bytes));
      ASSERT_NE(moved, nullptr);
      blocks.forget(block);
      const size_t kept = std::min(before, bytes);
      if (before <= Blocks::kWhole) {
        ASSERT_TRUE(Blocks::marked(moved, kept, fill)) << before << " to " << bytes;
      } else {
        ASSERT_EQ(moved[0], fill);
      }
      blocks.add(moved, bytes);
    }
    if (step % 1000 == 0) {
      ASSERT_TRUE(heap::is_valid()) << step;
    }
    if (random.below(10'000) == 0) heap::compact();
    ASSERT_FALSE(HasFailure()) << step;
  }
}

}  // namespace
}  // namespace loam
