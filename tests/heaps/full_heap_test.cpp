// A fixed heap that is full: freed memory serves other sizes, as on Windows. docs/heaps.md, "A full
// heap", has the promises.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include <loam/heap.hpp>

#include "interface.h"

namespace heaps {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

template <typename Interface>
class FullHeap : public ::testing::Test {
 public:
  static std::vector<void*> fill(typename Interface::Heap heap, size_t bytes, int value) {
    std::vector<void*> blocks;
    while (void* const block = Interface::alloc(heap, bytes)) {
      std::memset(block, value, bytes);
      blocks.push_back(block);
    }
    return blocks;
  }
};
TYPED_TEST_SUITE(FullHeap, Interfaces, InterfaceNames);

TYPED_TEST(FullHeap, OneBlockOf4000BecomesOneOf2000) {
  for (const bool unsynchronized : {false, true}) {
    const Scoped<TypeParam> heap({.maximum = kMiB, .unsynchronized = unsynchronized});
    const std::vector<void*> blocks = this->fill(heap, 4000, 1);
    ASSERT_GT(blocks.size() * 4000, kMiB * 9 / 10);
    ASSERT_TRUE(TypeParam::free(heap, blocks.back()));
    void* const half = TypeParam::alloc(heap, 2000);
    ASSERT_NE(half, nullptr);
    EXPECT_EQ(TypeParam::size(heap, half), 2000u);
    EXPECT_NE(TypeParam::alloc(heap, 2000), nullptr) << "the other half";
    EXPECT_EQ(TypeParam::alloc(heap, 2000), nullptr);
    EXPECT_TRUE(TypeParam::validate(heap, nullptr));
    EXPECT_LE(TypeParam::summary(heap).committed, kMiB);
  }
}

// Live blocks of a span that is cut anew stay in place, and every call treats them as before.
TYPED_TEST(FullHeap, TheOtherBlocksOfTheSpanStayWhatTheyAre) {
  const Scoped<TypeParam> heap({.maximum = kMiB});
  std::vector<void*> blocks = this->fill(heap, 3000, 1);
  std::set<void*> live;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % 2 == 0) {
      ASSERT_TRUE(TypeParam::free(heap, blocks[i]));
    } else {
      live.insert(blocks[i]);
    }
  }
  const std::vector<void*> others = this->fill(heap, 700, 2);
  ASSERT_GT(others.size(), blocks.size());
  for (void* const block : live) {
    ASSERT_TRUE(is_filled(block, 3000, 1));
    ASSERT_EQ(TypeParam::size(heap, block), 3000u);
    ASSERT_TRUE(TypeParam::validate(heap, block));
    ASSERT_FALSE(TypeParam::validate(heap, static_cast<char*>(block) + 16));
    ASSERT_TRUE(TypeParam::resize(heap, block, 2900));
    ASSERT_EQ(TypeParam::size(heap, block), 2900u);
  }
  for (void* const block : others) ASSERT_TRUE(is_filled(block, 700, 2));
  size_t busy = 0;
  for (const Entry& entry : TypeParam::walk(heap)) {
    if (entry.kind != Kind::kBusy) continue;
    ++busy;
    ASSERT_EQ(entry.bytes, live.count(entry.address) == 1 ? 2900u : 700u);
  }
  EXPECT_EQ(busy, live.size() + others.size());
  for (void* const block : live) ASSERT_TRUE(TypeParam::free(heap, block));
  for (void* const block : live) ASSERT_FALSE(TypeParam::free(heap, block)) << "a second time";
  for (void* const block : others) ASSERT_TRUE(TypeParam::free(heap, block));
  EXPECT_EQ(TypeParam::summary(heap).allocated, 0u);
  EXPECT_NE(TypeParam::alloc(heap, kMiB / 10 * 9), nullptr) << "the spans went back";
}

TYPED_TEST(FullHeap, ABlockShrinksWhereItIsIfNothingElseIsFree) {
  const Scoped<TypeParam> heap({.maximum = kMiB});
  void* const large = TypeParam::alloc(heap, 100'000);
  std::memset(large, 3, 100'000);
  const std::vector<void*> blocks = this->fill(heap, 4000, 1);
  while (TypeParam::alloc(heap, 16) != nullptr) {
  }
  void* const small = TypeParam::realloc(heap, blocks.front(), 100);
  ASSERT_NE(small, nullptr);
  EXPECT_TRUE(is_filled(small, 100, 1));
  EXPECT_EQ(TypeParam::size(heap, small), 100u);
  void* const shrunk = TypeParam::realloc(heap, large, 5000);
  ASSERT_NE(shrunk, nullptr);
  EXPECT_TRUE(is_filled(shrunk, 5000, 3));
  EXPECT_NE(TypeParam::alloc(heap, 50'000), nullptr) << "what the large block gave back";
  EXPECT_TRUE(TypeParam::validate(heap, nullptr));
}

TYPED_TEST(FullHeap, ZeroedBlocksAreZeroInWhatWasFreed) {
  const Scoped<TypeParam> heap({.maximum = kMiB});
  const std::vector<void*> blocks = this->fill(heap, 5000, 0xff);
  for (size_t i = 0; i < blocks.size(); i += 3) ASSERT_TRUE(TypeParam::free(heap, blocks[i]));
  size_t served = 0;
  while (void* const block = TypeParam::zalloc(heap, 900)) {
    ASSERT_TRUE(is_filled(block, 900, 0));
    void* const longer = TypeParam::zrealloc(heap, block, 910);
    ASSERT_TRUE(longer == nullptr || is_filled(longer, 910, 0));
    ++served;
  }
  EXPECT_GT(served, blocks.size());
}

// Slots of a span that another thread has cached return before the span is cut. Threads that use
// the heap meanwhile find their blocks.
TYPED_TEST(FullHeap, ThreadsUseAHeapThatIsFullAllTheTime) {
  constexpr unsigned kThreads = 4;
  for (const size_t maximum : {kMiB / 4, kMiB}) {
    const Scoped<TypeParam> heap({.maximum = maximum});
    ASSERT_TRUE(TypeParam::set_mode(heap, 2));
    std::atomic<size_t> refused{0}, served{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        struct Block {
          unsigned char* start;
          size_t bytes;
          unsigned char value;
        };
        std::vector<Block> blocks;
        uint64_t state = t + 1;
        const auto below = [&state](uint64_t n) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          return (state >> 33) % n;
        };
        size_t usual = 1000;
        for (unsigned step = 0; step < 20'000; ++step) {
          if (step % 500 == 0) usual = 16 + below(6000);
          if (below(100) < 52) {
            const size_t bytes = below(10) == 0 ? below(40'000) : usual / (1 + below(4));
            auto* const start = static_cast<unsigned char*>(TypeParam::alloc(heap, bytes));
            if (start == nullptr) {
              ++refused;
              continue;
            }
            ++served;
            const auto value = static_cast<unsigned char>(below(256));
            std::memset(start, value, bytes);
            blocks.push_back({start, bytes, value});
            continue;
          }
          if (blocks.empty()) continue;
          Block& block = blocks[below(blocks.size())];
          ASSERT_EQ(TypeParam::size(heap, block.start), block.bytes);
          ASSERT_TRUE(is_filled(block.start, block.bytes, block.value));
          if (below(4) == 0) {
            const size_t bytes = block.bytes - block.bytes / 8;
            ASSERT_TRUE(TypeParam::resize(heap, block.start, bytes));
            block.bytes = bytes;
            ASSERT_EQ(TypeParam::size(heap, block.start), bytes);
            continue;
          }
          ASSERT_TRUE(TypeParam::free(heap, block.start));
          block = blocks.back();
          blocks.pop_back();
        }
        for (const Block& block : blocks) {
          ASSERT_TRUE(is_filled(block.start, block.bytes, block.value));
          ASSERT_TRUE(TypeParam::free(heap, block.start));
        }
      });
    }
    for (int look = 0; look < 50; ++look) {
      EXPECT_TRUE(TypeParam::validate(heap, nullptr));
      static_cast<void>(TypeParam::walk(heap));
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GT(refused, 0u);
    EXPECT_GT(served, 10'000u);
    EXPECT_TRUE(TypeParam::validate(heap, nullptr));
    EXPECT_EQ(TypeParam::summary(heap).allocated, 0u);
    EXPECT_LE(TypeParam::summary(heap).committed, maximum);
    EXPECT_NE(TypeParam::alloc(heap, maximum / 10 * 9), nullptr);
  }
}

// Flags that guard blocks, alignments, and the C++ interface.
TEST(FullHeapLoam, GuardedAndAlignedBlocksAreServedToo) {
  for (const bool canary : {false, true}) {
    for (const bool poison : {false, true}) {
      for (const bool zero_on_free : {false, true}) {
        loam::heap heap(
            {.maximum = kMiB, .zero_on_free = zero_on_free, .canary = canary, .poison = poison});
        std::vector<void*> blocks;
        while (void* const block = loam_alloc(heap.get(), 4000)) blocks.push_back(block);
        ASSERT_GT(blocks.size() * 4000, kMiB / 10 * 9);
        for (size_t i = 0; i < blocks.size(); i += 2)
          ASSERT_EQ(loam_free(heap.get(), blocks[i]), LOAM_OK);
        std::vector<void*> others;
        for (size_t alignment = 16; alignment <= 2048; alignment *= 2) {
          void* const block = loam_aligned_alloc(heap.get(), alignment, 1000);
          ASSERT_NE(block, nullptr) << alignment;
          ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
          std::memset(block, 5, 1000);
          others.push_back(block);
        }
        ASSERT_EQ(loam_validate(heap.get(), nullptr), LOAM_OK);
        if (canary) {
          auto* const behind = static_cast<unsigned char*>(others.front()) + 1000;
          const unsigned char was = *behind;
          *behind = static_cast<unsigned char>(~was);
          EXPECT_EQ(loam_validate(heap.get(), others.front()), LOAM_CORRUPT);
          *behind = was;
        }
        for (void* const block : others) {
          ASSERT_TRUE(is_filled(block, 1000, 5));
          ASSERT_EQ(loam_free(heap.get(), block), LOAM_OK);
          if (zero_on_free) {
            ASSERT_TRUE(is_filled(block, 1000, 0)) << "its span has live blocks, so its page stays";
          }
        }
        ASSERT_EQ(loam_validate(heap.get(), nullptr), LOAM_OK);
      }
    }
  }
}

// Blocks that other threads have freed are in their caches, and serve other sizes all the same.
TYPED_TEST(FullHeap, WhatAnotherThreadCachesServesOtherSizes) {
  const Scoped<TypeParam> heap({.maximum = kMiB});
  ASSERT_TRUE(TypeParam::set_mode(heap, 2));
  const std::vector<void*> blocks = this->fill(heap, 500, 1);
  std::atomic<int> stage{0};
  std::thread other([&] {
    // Enough calls for a cache; then a few blocks that stay in it.
    for (size_t i = 0; i < 200; ++i) ASSERT_TRUE(TypeParam::free(heap, blocks[i]));
    for (size_t i = 0; i < 180; ++i) ASSERT_NE(TypeParam::alloc(heap, 500), nullptr);
    stage = 1;
    while (stage != 2) std::this_thread::yield();
  });
  while (stage != 1) std::this_thread::yield();
  size_t served = 0;
  while (TypeParam::alloc(heap, 200) != nullptr) ++served;
  EXPECT_GE(served, 20u);
  stage = 2;
  other.join();
  EXPECT_TRUE(TypeParam::validate(heap, nullptr));
}

}  // namespace
}  // namespace heaps
