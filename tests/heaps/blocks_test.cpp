// Blocks: ideas 2 to 10 of the list that README.md explains. Each test states the answers of both
// interfaces.
#include <sys/mman.h>

#include <algorithm>

#include "interface.h"

namespace heaps {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

template <typename Interface>
class Blocks : public ::testing::Test {};
TYPED_TEST_SUITE(Blocks, Interfaces, InterfaceNames);

TYPED_TEST(Blocks, Idea02FreeOfNullSucceedsAndReallocOfNullFails) {
  const Scoped<TypeParam> heap;
  EXPECT_TRUE(TypeParam::free(heap, nullptr));
  EXPECT_EQ(TypeParam::realloc(heap, nullptr, 100), nullptr);
  EXPECT_EQ(TypeParam::zrealloc(heap, nullptr, 100), nullptr);
  EXPECT_FALSE(TypeParam::resize(heap, nullptr, 100));
  EXPECT_EQ(TypeParam::summary(heap).allocated, 0u);
}

TYPED_TEST(Blocks, Idea03ZeroIsASizeLikeAnyOther) {
  const Scoped<TypeParam> heap;
  void* const empty = TypeParam::alloc(heap, 0);
  void* const other = TypeParam::zalloc(heap, 0);
  ASSERT_NE(empty, nullptr);
  ASSERT_NE(other, nullptr);
  EXPECT_NE(empty, other);
  EXPECT_EQ(TypeParam::size(heap, empty), 0u);
  EXPECT_TRUE(TypeParam::validate(heap, empty));
  EXPECT_TRUE(TypeParam::free(heap, empty));
  EXPECT_TRUE(TypeParam::free(heap, other));

  for (const size_t bytes : {1 * kKiB, 64 * kKiB, 40 * kMiB}) {
    void* const block = TypeParam::alloc(heap, bytes);
    ASSERT_NE(block, nullptr) << bytes;
    void* const emptied = TypeParam::realloc(heap, block, 0);
    ASSERT_NE(emptied, nullptr) << bytes << ": size 0 must not free";
    EXPECT_EQ(TypeParam::size(heap, emptied), 0u);
    EXPECT_TRUE(TypeParam::validate(heap, emptied));
    EXPECT_TRUE(TypeParam::free(heap, emptied));
    EXPECT_FALSE(TypeParam::validate(heap, emptied));
  }
}

TYPED_TEST(Blocks, Idea04SizesThatOverflowFailAndLeaveTheBlockAlone) {
  const Scoped<TypeParam> heap;
  for (const size_t bytes : {size_t{200}, 100 * kKiB, 40 * kMiB}) {
    void* const block = TypeParam::alloc(heap, bytes);
    ASSERT_NE(block, nullptr);
    std::memset(block, 0x5c, bytes);
    for (const size_t absurd : {SIZE_MAX, SIZE_MAX - 7, SIZE_MAX - 4096, SIZE_MAX / 2 + 1}) {
      EXPECT_EQ(TypeParam::alloc(heap, absurd), nullptr) << absurd;
      EXPECT_EQ(TypeParam::zalloc(heap, absurd), nullptr) << absurd;
      EXPECT_EQ(TypeParam::realloc(heap, block, absurd), nullptr) << absurd;
      EXPECT_EQ(TypeParam::zrealloc(heap, block, absurd), nullptr) << absurd;
      EXPECT_FALSE(TypeParam::resize(heap, block, absurd)) << absurd;
    }
    EXPECT_TRUE(TypeParam::validate(heap, block));
    EXPECT_EQ(TypeParam::size(heap, block), bytes);
    EXPECT_TRUE(is_filled(block, bytes, 0x5c));
    EXPECT_TRUE(TypeParam::free(heap, block));
  }
}

// Idea 5. Native Windows sets ERROR_NOACCESS for an unmapped pointer, against the documentation.
// Here the last error stays, as win32_test.cpp shows.
TYPED_TEST(Blocks, Idea05ValidateAnswersAnyPointer) {
  const Scoped<TypeParam> heap;
  const Scoped<TypeParam> other;
  EXPECT_TRUE(TypeParam::validate(heap, nullptr));
  void* const small = TypeParam::alloc(heap, 100);
  void* const large = TypeParam::alloc(heap, 300 * kKiB);
  void* const huge = TypeParam::alloc(heap, 40 * kMiB);
  ASSERT_TRUE(small != nullptr && large != nullptr && huge != nullptr);
  for (void* const block : {small, large, huge}) {
    EXPECT_TRUE(TypeParam::validate(heap, block));
    EXPECT_FALSE(TypeParam::validate(other, block)) << "another heap's";
    EXPECT_FALSE(TypeParam::validate(heap, static_cast<char*>(block) + 16)) << "a middle";
    EXPECT_FALSE(TypeParam::validate(heap, static_cast<char*>(block) + 1)) << "misaligned";
  }
  EXPECT_TRUE(TypeParam::validate(heap, nullptr));
  for (void* const block : {small, large, huge}) {
    EXPECT_TRUE(TypeParam::free(heap, block));
    EXPECT_FALSE(TypeParam::validate(heap, block)) << "freed";
  }

  int here = 0;
  static int readable[64];
  EXPECT_FALSE(TypeParam::validate(heap, &here));
  EXPECT_FALSE(TypeParam::validate(heap, readable));
  void* const foreign =
      ::mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(foreign, MAP_FAILED);
  EXPECT_FALSE(TypeParam::validate(heap, foreign));
  ASSERT_EQ(::munmap(foreign, 65536), 0);
  EXPECT_FALSE(TypeParam::validate(heap, foreign)) << "unmapped";
  for (const uintptr_t wild : {uintptr_t{1}, uintptr_t{16}, uintptr_t{0xdeadbee0}, UINTPTR_MAX,
                               UINTPTR_MAX - 15, uintptr_t{1} << 47, uintptr_t{1} << 62}) {
    EXPECT_FALSE(TypeParam::validate(heap, reinterpret_cast<void*>(wild))) << std::hex << wild;
  }
}

TYPED_TEST(Blocks, Idea06SizeIsWhatWasAskedFor) {
  const Scoped<TypeParam> heap;
  const size_t sizes[] = {1, 17, 123, 456, 256 * kKiB, 1 * kMiB, 3000 * kKiB + 37, 33 * kMiB + 5};
  std::vector<void*> blocks;
  for (const size_t bytes : sizes) {
    blocks.push_back(TypeParam::alloc(heap, bytes));
    ASSERT_NE(blocks.back(), nullptr);
  }
  const std::vector<Entry> entries = TypeParam::walk(heap);
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(TypeParam::size(heap, blocks[i]), sizes[i]);
    const Entry* const entry = find(entries, blocks[i]);
    ASSERT_NE(entry, nullptr) << sizes[i];
    EXPECT_EQ(entry->bytes, sizes[i]);
  }
  // The same holds after a resize, in place or not.
  void* const block = TypeParam::realloc(heap, blocks[2], 125);
  EXPECT_EQ(TypeParam::size(heap, block), 125u);
  EXPECT_EQ(TypeParam::size(heap, TypeParam::realloc(heap, block, 99 * kKiB + 1)), 99 * kKiB + 1);
}

// Idea 7: the alignment is 16, and not larger by accident. Classes whose slots are odd multiples of
// 16 must show that.
TYPED_TEST(Blocks, Idea07AlignmentIsSixteen) {
  const Scoped<TypeParam> heap;
  for (const size_t bytes : {0, 1, 15, 16, 24, 48, 80, 112, 144, 200, 256, 700, 1000, 4096, 5000}) {
    bool more = true;
    for (int i = 0; i < 128; ++i) {
      void* const block = TypeParam::alloc(heap, bytes);
      ASSERT_NE(block, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0u) << bytes;
      more = more && reinterpret_cast<uintptr_t>(block) % 32 == 0;
    }
    if (bytes == 48 || bytes == 80 || bytes == 112 || bytes == 144) {
      EXPECT_FALSE(more) << bytes;
    }
  }
  for (const size_t bytes : {33 * kKiB, 100 * kKiB, 2 * kMiB, 40 * kMiB}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(TypeParam::alloc(heap, bytes)) % 16, 0u);
  }
}

TYPED_TEST(Blocks, Idea08ZeroedMemoryIsZeroWhereverItComesFrom) {
  const Scoped<TypeParam> heap;
  for (const bool eager : {false, true}) {
    if (eager) {
      ASSERT_TRUE(TypeParam::set_mode(heap, 2));
    }
    for (const size_t bytes : {size_t{1}, size_t{100}, 2 * kKiB, 16 * kKiB, 48 * kKiB, 700 * kKiB,
                               3 * kMiB, 40 * kMiB}) {
      for (int round = 0; round < 3; ++round) {
        void* blocks[24];
        const size_t wanted = bytes > kMiB ? 1 : 24;
        for (size_t i = 0; i < wanted; ++i) {
          blocks[i] = TypeParam::zalloc(heap, bytes);
          ASSERT_NE(blocks[i], nullptr);
          ASSERT_TRUE(is_filled(blocks[i], bytes, 0)) << bytes << ", round " << round;
          std::memset(blocks[i], 0xee, bytes);
        }
        for (size_t i = 0; i < wanted; ++i) ASSERT_TRUE(TypeParam::free(heap, blocks[i]));
      }
    }
  }
}

TYPED_TEST(Blocks, Idea09ZeroingReallocClearsExactlyWhatIsNew) {
  const Scoped<TypeParam> heap;
  for (const size_t start : {size_t{100}, 5 * kKiB, 60 * kKiB, 2 * kMiB}) {
    auto* block = static_cast<char*>(TypeParam::zalloc(heap, start));
    ASSERT_NE(block, nullptr);
    std::memset(block, 0x77, start);
    const size_t grown = start + start / 2 + 13;
    block = static_cast<char*>(TypeParam::zrealloc(heap, block, grown));
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(is_filled(block, start, 0x77)) << start;
    EXPECT_TRUE(is_filled(block + start, grown - start, 0)) << start;
    std::memset(block, 0x77, grown);
    block = static_cast<char*>(TypeParam::zrealloc(heap, block, 1));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(block[0], 0x77);
    // Within the rest of the slot, and then far beyond it.
    block = static_cast<char*>(TypeParam::zrealloc(heap, block, 9));
    ASSERT_NE(block, nullptr);
    EXPECT_TRUE(is_filled(block + 1, 8, 0)) << start;
    block = static_cast<char*>(TypeParam::zrealloc(heap, block, kMiB));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(block[0], 0x77);
    EXPECT_TRUE(is_filled(block + 1, kMiB - 1, 0)) << start;
    EXPECT_TRUE(TypeParam::free(heap, block));
  }
}

// The same for a block that was never requested as zeroed. Its new bytes must be zero too, whatever
// the memory held.
TYPED_TEST(Blocks, Idea09ZeroingReallocOfADirtyBlock) {
  const Scoped<TypeParam> heap;
  for (const size_t bytes : {size_t{3}, size_t{17}, size_t{100}, 3 * kKiB + 1, 40 * kKiB + 1}) {
    void* dirty = TypeParam::alloc(heap, bytes + 12);
    ASSERT_NE(dirty, nullptr);
    std::memset(dirty, 0x99, bytes + 12);
    ASSERT_TRUE(TypeParam::free(heap, dirty));
    auto* block = static_cast<char*>(TypeParam::alloc(heap, bytes));
    ASSERT_NE(block, nullptr);
    std::memset(block, 0x55, bytes);
    for (size_t more = bytes + 1; more < bytes + 40; more += 3) {
      const size_t before = TypeParam::size(heap, block);
      block = static_cast<char*>(TypeParam::zrealloc(heap, block, more));
      ASSERT_NE(block, nullptr);
      ASSERT_TRUE(is_filled(block + before, more - before, 0)) << bytes << " to " << more;
      std::memset(block, 0x55, more);
    }
    EXPECT_TRUE(TypeParam::free(heap, block));
  }
}

TYPED_TEST(Blocks, Idea10InPlaceShrinkAndRegrowKeepTheAddress) {
  const Scoped<TypeParam> heap;
  for (const size_t bytes : {size_t{1000}, 64 * kKiB, 300 * kKiB, 1 * kMiB}) {
    // The smallest size of its class for the small one: size classes bound what "in place" means.
    const size_t less = bytes == 1000 ? 930 : bytes / 2 + 1;
    void* const block = TypeParam::alloc(heap, bytes);
    ASSERT_NE(block, nullptr);
    std::memset(block, 0x31, bytes);
    ASSERT_TRUE(TypeParam::resize(heap, block, less)) << bytes;
    EXPECT_EQ(TypeParam::size(heap, block), less);
    ASSERT_TRUE(TypeParam::resize(heap, block, bytes)) << bytes;
    EXPECT_EQ(TypeParam::size(heap, block), bytes);
    EXPECT_TRUE(is_filled(block, less, 0x31));
    EXPECT_TRUE(TypeParam::free(heap, block));
  }
}

// A block above 2 MiB may refuse to grow back. It must then be unchanged.
TYPED_TEST(Blocks, Idea10AVeryLargeBlockShrinksInPlaceAndMayRefuseToRegrow) {
  const Scoped<TypeParam> heap;
  for (const size_t bytes : {3 * kMiB, 16 * kMiB, 48 * kMiB}) {
    const size_t less = bytes / 4 * 3;
    void* const block = TypeParam::alloc(heap, bytes);
    ASSERT_NE(block, nullptr);
    std::memset(block, 0x42, less);
    ASSERT_TRUE(TypeParam::resize(heap, block, less));
    EXPECT_EQ(TypeParam::size(heap, block), less);
    const bool grown = TypeParam::resize(heap, block, bytes);
    EXPECT_EQ(TypeParam::size(heap, block), grown ? bytes : less);
    EXPECT_TRUE(is_filled(block, less, 0x42));
    EXPECT_TRUE(TypeParam::free(heap, block));
  }
}

TYPED_TEST(Blocks, Idea10WhatCannotBeDoneInPlaceChangesNothing) {
  const Scoped<TypeParam> heap;
  void* const block = TypeParam::alloc(heap, 100);
  void* const neighbour = TypeParam::alloc(heap, 100);
  ASSERT_TRUE(block != nullptr && neighbour != nullptr);
  std::memset(block, 0x24, 100);
  EXPECT_FALSE(TypeParam::resize(heap, block, 5000));
  EXPECT_EQ(TypeParam::size(heap, block), 100u);
  EXPECT_TRUE(is_filled(block, 100, 0x24));
  EXPECT_TRUE(TypeParam::validate(heap, block));
}

// Idea 23. This heap has its useful half without any option: pointers are looked up, so every
// pointer that is no live block gets a size of -1 and a refusal. (The other half, damage behind a
// block's end, belongs to idea 22.)
TYPED_TEST(Blocks, Idea23PointersThatAreNoBlocksAreRefused) {
  const Scoped<TypeParam> heap;
  const Scoped<TypeParam> other;
  auto* const block = static_cast<char*>(TypeParam::alloc(heap, 500));
  auto* const large = static_cast<char*>(TypeParam::alloc(heap, 100 * kKiB));
  void* const others = TypeParam::alloc(other, 500);
  ASSERT_TRUE(block != nullptr && large != nullptr && others != nullptr);
  std::memset(block, 0x66, 500);
  int local = 0;
  for (void* const bad : {static_cast<void*>(block + 16), static_cast<void*>(block + 3),
                          static_cast<void*>(large + 4096), static_cast<void*>(large + 1), others,
                          static_cast<void*>(&local), reinterpret_cast<void*>(0x1230),
                          reinterpret_cast<void*>(UINTPTR_MAX - 15)}) {
    EXPECT_EQ(TypeParam::size(heap, bad), SIZE_MAX) << bad;
    EXPECT_EQ(TypeParam::realloc(heap, bad, 600), nullptr) << bad;
    EXPECT_FALSE(TypeParam::resize(heap, bad, 400)) << bad;
    EXPECT_FALSE(TypeParam::free(heap, bad)) << bad;
  }
  EXPECT_TRUE(TypeParam::validate(heap, nullptr));
  EXPECT_TRUE(is_filled(block, 500, 0x66));
  EXPECT_TRUE(TypeParam::free(heap, block));
  EXPECT_EQ(TypeParam::size(heap, block), SIZE_MAX) << "freed";
  EXPECT_FALSE(TypeParam::free(heap, block)) << "freed already";
  EXPECT_TRUE(TypeParam::free(other, others)) << "the other heap still has it";
}

}  // namespace
}  // namespace heaps
