// Large blocks that grow: their new bytes, their new address, and the memory that they leave
// behind.
#include <loam/stats.h>

#include <algorithm>

#include "interface.h"

namespace heaps {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kPage = 4096;

template <typename Interface>
class Growth : public ::testing::Test {};
TYPED_TEST_SUITE(Growth, Interfaces, InterfaceNames);

// A mark in each page, so that a page that was lost or swapped shows.
void mark(char* block, size_t from, size_t to) {
  for (size_t at = from; at < to; at += kPage) block[at] = static_cast<char>(1 + at / kPage % 127);
}
bool is_marked(const char* block, size_t from, size_t to) {
  for (size_t at = from; at < to; at += kPage) {
    if (block[at] != static_cast<char>(1 + at / kPage % 127)) return false;
  }
  return true;
}

struct loam_stats process_stats() {
  struct loam_stats stats {};
  stats.size = sizeof stats;
  EXPECT_EQ(loam_stats(nullptr, &stats), LOAM_OK);
  return stats;
}
size_t backed() { return process_stats().backed_bytes; }

// A mapping may grow into memory that another block has just left.
TYPED_TEST(Growth, WhatAMappingGrowsIntoReadsAsZero) {
  constexpr size_t kLong = 34 * kMiB;
  for (int round = 0; round < 6; ++round) {
    const Scoped<TypeParam> heap;
    char* blocks[3];
    for (char*& block : blocks) {
      block = static_cast<char*>(TypeParam::alloc(heap, kLong));
      ASSERT_NE(block, nullptr);
      std::memset(block, 0xdd, kLong);
    }
    // Addresses follow the order of time, or its reverse. So the middle block has a free neighbour
    // at its end.
    ASSERT_TRUE(TypeParam::free(heap, blocks[0]));
    ASSERT_TRUE(TypeParam::free(heap, blocks[2]));
    const size_t grown = kLong + kLong / 4 + 5;
    auto* const block = static_cast<char*>(TypeParam::zrealloc(heap, blocks[1], grown));
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(is_filled(block, kLong, 0xdd)) << round;
    EXPECT_TRUE(is_filled(block + kLong, grown - kLong, 0)) << round;
    EXPECT_EQ(TypeParam::size(heap, block), grown);
    EXPECT_TRUE(TypeParam::free(heap, block));
  }
}

TYPED_TEST(Growth, ContentsStayOnTheWayFromSlotsToMappings) {
  for (const size_t share : {1, 3, 9}) {
    const Scoped<TypeParam> heap;
    size_t bytes = 8 * kPage;
    auto* block = static_cast<char*>(TypeParam::alloc(heap, bytes));
    ASSERT_NE(block, nullptr);
    mark(block, 0, bytes);
    while (bytes < 50 * kMiB) {
      const size_t more = bytes / share + kPage / 2;
      // Bytes that were in use before do not count as new.
      const bool zero = bytes / kPage % 2 != 0;
      block = static_cast<char*>(zero ? TypeParam::zrealloc(heap, block, bytes + more)
                                      : TypeParam::realloc(heap, block, bytes + more));
      ASSERT_NE(block, nullptr);
      ASSERT_EQ(TypeParam::size(heap, block), bytes + more);
      ASSERT_TRUE(is_marked(block, 0, bytes)) << bytes << " by " << more;
      if (zero) {
        ASSERT_TRUE(is_filled(block + bytes, more, 0)) << bytes << " by " << more;
      }
      mark(block, (bytes + kPage - 1) / kPage * kPage, bytes + more);
      bytes += more;
      ASSERT_TRUE(TypeParam::validate(heap, nullptr));
    }
    while (bytes > 3 * kPage) {
      bytes /= 3;
      block = static_cast<char*>(TypeParam::realloc(heap, block, bytes));
      ASSERT_NE(block, nullptr);
      ASSERT_TRUE(is_marked(block, 0, bytes)) << bytes;
    }
    EXPECT_TRUE(TypeParam::free(heap, block));
  }
}

// Each buffer grew from the free memory into fresh memory, and left its old places behind.
TYPED_TEST(Growth, WhoGrowsBuffersAgainAndAgainIsNoLargerThanTheyAre) {
  const Scoped<TypeParam> heap;
  constexpr size_t kLast = 16 * kMiB;
  const size_t before = backed();
  size_t most = 0;
  for (int round = 0; round < 30; ++round) {
    char* block = nullptr;
    for (size_t bytes = 64 * kPage; bytes <= kLast; bytes *= 2) {
      block = static_cast<char*>(block == nullptr ? TypeParam::alloc(heap, bytes)
                                                  : TypeParam::realloc(heap, block, bytes));
      ASSERT_NE(block, nullptr);
      mark(block, 0, bytes);
    }
    most = std::max(most, backed());
    ASSERT_TRUE(TypeParam::free(heap, block));
  }
  EXPECT_LE(most, before + 2 * kLast);
}

// Old and new memory together exceed the maximum. Staying in place, or moving without a copy, does
// not.
TYPED_TEST(Growth, AHeapAtItsMaximumGrowsABlockWithoutASecondPlace) {
  const Scoped<TypeParam> heap(Options{.maximum = 24 * kMiB});
  auto* block = static_cast<char*>(TypeParam::alloc(heap, 22 * kMiB));
  ASSERT_NE(block, nullptr);
  ASSERT_TRUE(TypeParam::resize(heap, block, 10 * kMiB)) << "so that the pages behind it are free";
  mark(block, 0, 10 * kMiB);
  block = static_cast<char*>(TypeParam::realloc(heap, block, 16 * kMiB));
  ASSERT_NE(block, nullptr);
  EXPECT_TRUE(is_marked(block, 0, 10 * kMiB));
  EXPECT_EQ(TypeParam::size(heap, block), 16 * kMiB);
  EXPECT_TRUE(TypeParam::free(heap, block));
}

TYPED_TEST(Growth, AMappingThatGrowsIsChargedForWhatIsNew) {
  const Scoped<TypeParam> heap(Options{.maximum = 24 * kMiB});
  auto* block = static_cast<char*>(TypeParam::alloc(heap, 10 * kMiB));
  ASSERT_NE(block, nullptr);
  mark(block, 0, 10 * kMiB);
  for (const size_t bytes : {13 * kMiB, 22 * kMiB}) {
    block = static_cast<char*>(TypeParam::realloc(heap, block, bytes));
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(is_marked(block, 0, 10 * kMiB)) << bytes;
  }
  EXPECT_EQ(TypeParam::realloc(heap, block, 25 * kMiB), nullptr);
  EXPECT_TRUE(is_marked(block, 0, 10 * kMiB)) << "what could not grow is as it was";
  EXPECT_EQ(TypeParam::size(heap, block), 22 * kMiB);
  EXPECT_TRUE(TypeParam::free(heap, block));
}

// Otherwise a program with many buffers that grew once would run out of mappings.
TYPED_TEST(Growth, WhatBecomesShortHasNoMappingOfItsOwn) {
  const Scoped<TypeParam> heap;
  const size_t before = backed();
  std::vector<char*> blocks;
  for (int i = 0; i < 20; ++i) {
    auto* block = static_cast<char*>(TypeParam::alloc(heap, 2 * kMiB));
    ASSERT_NE(block, nullptr);
    mark(block, 0, 2 * kMiB);
    block = static_cast<char*>(TypeParam::realloc(heap, block, 5 * kMiB));
    ASSERT_NE(block, nullptr);
    block = static_cast<char*>(TypeParam::realloc(heap, block, 40 * kPage));
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(is_marked(block, 0, 40 * kPage));
    blocks.push_back(block);
  }
  EXPECT_EQ(process_stats().live_huge_blocks, 0u);
  EXPECT_LE(backed(), before + 12 * kMiB);
  for (char* block : blocks) EXPECT_TRUE(TypeParam::free(heap, block));
}

// A full heap has no room for a copy. It can still release the part that is no longer wanted.
TYPED_TEST(Growth, AFullHeapMakesBlocksShorter) {
  const Scoped<TypeParam> heap(Options{.maximum = 48 * kMiB});
  auto* block = static_cast<char*>(TypeParam::alloc(heap, 47 * kMiB));
  ASSERT_NE(block, nullptr);
  mark(block, 0, 47 * kMiB);
  block = static_cast<char*>(TypeParam::realloc(heap, block, 2 * kMiB - 1));
  ASSERT_NE(block, nullptr);
  EXPECT_TRUE(is_marked(block, 0, 2 * kMiB - 1));
  EXPECT_EQ(TypeParam::size(heap, block), 2 * kMiB - 1);
  void* const another = TypeParam::alloc(heap, 44 * kMiB);
  EXPECT_NE(another, nullptr);
  EXPECT_TRUE(TypeParam::free(heap, another));
  EXPECT_TRUE(TypeParam::free(heap, block));
}

// A mapping that waits for the next block would show that block the content of the last one.
TEST(FreedMappings, OfHeapsThatClearAreNotKept) {
  constexpr size_t kLong = 34 * kMiB;
  for (const unsigned flags : {unsigned{LOAM_HEAP_ZERO_ON_FREE}, unsigned{LOAM_HEAP_POISON}}) {
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.flags = flags;
    loam_heap* const heap = loam_heap_create(&options);
    ASSERT_NE(heap, nullptr);
    for (int round = 0; round < 4; ++round) {  // mappings are kept for a program that repeats
      void* const secret = loam_alloc(heap, kLong);
      ASSERT_NE(secret, nullptr);
      std::memset(secret, 0x5e, kLong);
      ASSERT_EQ(loam_free(heap, secret), LOAM_OK);
      auto* const block = static_cast<char*>(loam_alloc(loam_default(), kLong));
      ASSERT_NE(block, nullptr);
      size_t seen = 0;
      for (size_t at = 0; at < kLong; at += kPage) seen += block[at] == 0x5e;
      EXPECT_EQ(seen, 0u) << flags << ", round " << round;
      std::memset(block, 1, kLong);
      EXPECT_EQ(loam_free(loam_default(), block), LOAM_OK);
    }
    EXPECT_EQ(loam_heap_destroy(heap), LOAM_OK);
  }
}

// A moved mapping is aligned to pages, which is not enough for a stricter alignment.
TEST(GrowthOfAligned, BlocksStayAligned) {
  loam_heap* const heap = loam_heap_create(nullptr);
  ASSERT_NE(heap, nullptr);
  for (const size_t alignment : {size_t{16}, kPage, 4 * kPage, kMiB, 4 * kMiB}) {
    char* block = nullptr;
    size_t had = 0;
    for (size_t bytes = kMiB / 2; bytes <= 80 * kMiB; bytes = bytes * 3 / 2 / kPage * kPage) {
      block = static_cast<char*>(had == 0 ? loam_aligned_alloc(heap, alignment, bytes)
                                          : loam_aligned_realloc(heap, block, alignment, bytes, 1));
      ASSERT_NE(block, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << alignment << ", " << bytes;
      ASSERT_TRUE(is_marked(block, 0, had));
      if (had != 0) {
        ASSERT_TRUE(is_filled(block + had, bytes - had, 0));
      }
      mark(block, had, bytes);
      had = bytes;
    }
    EXPECT_EQ(loam_free(heap, block), LOAM_OK);
  }
  EXPECT_EQ(loam_heap_destroy(heap), LOAM_OK);
}

}  // namespace
}  // namespace heaps
