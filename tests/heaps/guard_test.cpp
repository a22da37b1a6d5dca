// Ideas 22 and 23: heaps whose blocks are guarded. A canary stands behind the requested bytes and
// moves with them, and freed memory has a pattern. Validation finds damage, and no longer finds it
// when it is undone. Calls that get a damaged block refuse. Our patterns differ from those of
// Windows' debug heap, and the canary's is secret; new memory has no pattern.
#include <gtest/gtest.h>
#include <loam/loam.h>
#include <loam/heap.hpp>

#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

namespace {

constexpr size_t kCanary = 8;
constexpr unsigned char kPoison = 0xf5;

class Guarded : public ::testing::Test {
 protected:
  explicit Guarded(unsigned flags = LOAM_HEAP_CANARY) {
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.flags = flags;
    options.name = "guarded";
    heap_ = loam_heap_create(&options);
  }
  ~Guarded() override { EXPECT_EQ(loam_heap_destroy(heap_), LOAM_OK); }

  unsigned char* alloc(size_t bytes) const {
    void* volatile block =
        loam_alloc(heap_, bytes);  // compilers know the size of a block if they see its allocation
    return static_cast<unsigned char*>(block);
  }
  loam_heap* heap_ = nullptr;
};

class Poisoned : public Guarded {
 protected:
  Poisoned() : Guarded(LOAM_HEAP_POISON) {}
};

TEST_F(Guarded, EverySizeHasACanaryOfAtLeastEightBytes) {
  for (size_t size = 0; size < 64; ++size) {
    unsigned char* block = alloc(size);
    ASSERT_NE(block, nullptr);
    memset(block, 'x', size);
    EXPECT_EQ(loam_validate(heap_, block), LOAM_OK);
    for (size_t at = size; at < size + kCanary; ++at) {
      const unsigned char was = block[at];
      EXPECT_NE(was, 0) << "a terminator must show";
      block[at] ^= 1;
      EXPECT_EQ(loam_validate(heap_, block), LOAM_CORRUPT) << size << " " << at;
      EXPECT_EQ(loam_validate(heap_, nullptr), LOAM_CORRUPT);
      block[at] = was;
      EXPECT_EQ(loam_validate(heap_, block), LOAM_OK);
    }
    EXPECT_EQ(loam_validate(heap_, nullptr), LOAM_OK);
    EXPECT_EQ(loam_free(heap_, block), LOAM_OK);
  }
}

TEST_F(Guarded, LargeBlocksHaveOneToo) {
  for (const size_t size :
       {size_t{32760}, size_t{32768}, size_t{100000}, size_t{20 * 4096}, (size_t{33} << 20) + 5}) {
    unsigned char* block = alloc(size);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(loam_size(heap_, block), size);
    block[size] ^= 1;
    EXPECT_EQ(loam_validate(heap_, block), LOAM_CORRUPT);
    EXPECT_EQ(loam_free(heap_, block), LOAM_CORRUPT);
    block[size] ^= 1;
    EXPECT_EQ(loam_free(heap_, block), LOAM_OK);
  }
}

TEST_F(Guarded, TheCanaryMovesWithTheSize) {
  unsigned char* block = alloc(100);
  ASSERT_EQ(loam_try_resize(heap_, block, 60), LOAM_OK);
  EXPECT_EQ(loam_size(heap_, block), 60u);
  EXPECT_EQ(loam_usable_size(heap_, block), 60u);
  EXPECT_EQ(loam_validate(heap_, block), LOAM_OK);
  block[60] ^= 1;
  EXPECT_EQ(loam_validate(heap_, block), LOAM_CORRUPT);
  block[60] ^= 1;
  ASSERT_EQ(loam_try_resize(heap_, block, 90), LOAM_OK);
  memset(block, 'x', 90);
  EXPECT_EQ(loam_validate(heap_, block), LOAM_OK);
  EXPECT_EQ(loam_try_resize(heap_, block, 112), LOAM_NOT_IN_PLACE)
      << "no room would be left for it";
  auto* moved = static_cast<unsigned char*>(loam_zrealloc(heap_, block, 50000));
  ASSERT_NE(moved, nullptr);
  EXPECT_EQ(moved[89], 'x');
  for (size_t at = 90; at < 50000; ++at) ASSERT_EQ(moved[at], 0);
  EXPECT_EQ(loam_validate(heap_, moved), LOAM_OK);
  moved = static_cast<unsigned char*>(loam_zrealloc(heap_, moved, 90000));
  ASSERT_NE(moved, nullptr);
  for (size_t at = 90; at < 90000; ++at) ASSERT_EQ(moved[at], 0);
  EXPECT_EQ(loam_validate(heap_, moved), LOAM_OK);
  EXPECT_EQ(loam_free(heap_, moved), LOAM_OK);
}

TEST_F(Guarded, ZeroedAndAlignedBlocksAreGuarded) {
  auto* zeroed = static_cast<unsigned char*>(loam_zalloc(heap_, 33));
  for (size_t at = 0; at < 33; ++at) EXPECT_EQ(zeroed[at], 0);
  EXPECT_EQ(loam_validate(heap_, zeroed), LOAM_OK);
  auto* aligned = static_cast<unsigned char*>(loam_aligned_alloc(heap_, 1024, 1024));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned) % 1024, 0u);
  memset(aligned, 1, 1024);
  EXPECT_EQ(loam_validate(heap_, aligned), LOAM_OK);
  aligned[1024] ^= 0x80;
  EXPECT_EQ(loam_validate(heap_, aligned), LOAM_CORRUPT);
  aligned[1024] ^= 0x80;
  EXPECT_EQ(loam_free(heap_, aligned), LOAM_OK);
  EXPECT_EQ(loam_free(heap_, zeroed), LOAM_OK);
}

TEST_F(Guarded, CallsRefuseADamagedBlock) {
  unsigned char* block = alloc(24);
  block[24] ^= 1;
  EXPECT_EQ(loam_size(heap_, block), SIZE_MAX);
  EXPECT_EQ(loam_last_status(), LOAM_CORRUPT);
  EXPECT_EQ(loam_realloc(heap_, block, 200), nullptr);
  EXPECT_EQ(loam_last_status(), LOAM_CORRUPT);
  EXPECT_EQ(loam_try_resize(heap_, block, 10), LOAM_CORRUPT);
  EXPECT_EQ(loam_free_sized(heap_, block, 24), LOAM_CORRUPT);
  EXPECT_EQ(loam_free(heap_, block), LOAM_CORRUPT);
  block[24] ^= 1;
  EXPECT_EQ(loam_size(heap_, block), 24u) << "nothing was freed or changed";
  EXPECT_EQ(loam_free(heap_, block), LOAM_OK);
}

TEST_F(Guarded, CanariesDifferFromBlockToBlock) {
  std::set<std::vector<unsigned char>> seen;
  for (int i = 0; i < 100; ++i) {
    unsigned char* block = alloc(24);
    seen.emplace(block + 24, block + 32);
  }
  EXPECT_GT(seen.size(), 95u);
}

TEST_F(Guarded, DamageBehindABlockIsReportedByFree) {
  unsigned char* block = alloc(24);
  block[25] ^= 1;
  EXPECT_EXIT(free(block), ::testing::KilledBySignal(SIGABRT),
              "^loam: overflow: byte 25 of a block of 24 bytes was overwritten .address 0x.*, heap "
              "guarded, thread ");
  EXPECT_EXIT(free(realloc(block, 5000)), ::testing::KilledBySignal(SIGABRT),
              "byte 25 of a block of 24");
  block[25] ^= 1;
  free(block);
}

// This has another report: a block that is never freed was never checked.
TEST(GuardedHeaps, DestructionReportsWhatIsLiveAndOverrun) {
  const auto overrun = [](bool at_exit, size_t size) {
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.flags = LOAM_HEAP_CANARY;
    loam_heap* heap = loam_heap_create(&options);
    void* volatile block = loam_alloc(heap, size);
    static_cast<volatile unsigned char*>(block)[size] = 2;
    if (!at_exit) static_cast<void>(loam_heap_destroy(heap));
    exit(0);
  };
  EXPECT_DEATH(overrun(false, 24), "overflow: byte 24 of a block of 24 bytes");
  EXPECT_DEATH(overrun(false, 100'000), "overflow: byte 100000 of a block");
  EXPECT_DEATH(overrun(true, 24), "overflow: byte 24 of a block of 24 bytes");
}

TEST_F(Poisoned, FreedMemoryHasThePattern) {
  for (const size_t size : {size_t{1}, size_t{40}, size_t{500}, size_t{9000}}) {
    unsigned char* block = alloc(size);
    memset(block, 'x', size);
    EXPECT_EQ(loam_free(heap_, block), LOAM_OK);
    for (size_t at = 0; at < size; ++at) ASSERT_EQ(block[at], kPoison);
    EXPECT_EQ(loam_validate(heap_, block), LOAM_INVALID_BLOCK);
    EXPECT_EQ(loam_free(heap_, block), LOAM_INVALID_BLOCK);
  }
  EXPECT_EQ(loam_validate(heap_, nullptr), LOAM_OK);
}

TEST_F(Poisoned, AFreedBlockIsKeptFromUse) {
  unsigned char* block = alloc(40);
  EXPECT_EQ(loam_free(heap_, block), LOAM_OK);
  for (int i = 0; i < 100; ++i) EXPECT_NE(alloc(40), block);
}

TEST_F(Poisoned, AWriteToItIsSeenByValidationAndReportedWhenItLeaves) {
  unsigned char* block = alloc(40);
  EXPECT_EQ(loam_free(heap_, block), LOAM_OK);
  block[17] = 1;
  EXPECT_EQ(loam_validate(heap_, nullptr), LOAM_CORRUPT);
  const auto churn = [this] {
    for (int i = 0; i < 5000; ++i) static_cast<void>(loam_free(heap_, alloc(48)));
  };
  EXPECT_EXIT(churn(), ::testing::KilledBySignal(SIGABRT),
              "^loam: use after free: byte 17 of a freed block was overwritten .address 0x.*, "
              "class 48, heap guarded");
  EXPECT_EXIT(static_cast<void>(loam_heap_destroy(heap_)), ::testing::KilledBySignal(SIGABRT),
              "use after free: byte 17");
  block[17] = kPoison;
  EXPECT_EQ(loam_validate(heap_, nullptr), LOAM_OK);
  churn();
  EXPECT_EQ(loam_validate(heap_, nullptr), LOAM_OK);
}

TEST_F(Poisoned, WhatIsHeldBackCountsAsFree) {
  std::vector<void*> blocks;
  for (int i = 0; i < 300; ++i) blocks.push_back(alloc(16 + static_cast<size_t>(i) * 7));
  for (void* block : blocks) EXPECT_EQ(loam_free(heap_, block), LOAM_OK);
  loam_heap_summary summary{};
  summary.size = sizeof summary;
  ASSERT_EQ(loam_summary(heap_, &summary), LOAM_OK);
  EXPECT_EQ(summary.blocks, 0u);
  loam_walk_entry entry{};
  entry.size = sizeof entry;
  while (loam_walk_next(heap_, &entry) == LOAM_OK)
    EXPECT_NE(entry.kind, unsigned{LOAM_ENTRY_SMALL});
  // The guarded memory goes too when the heap is asked for its memory.
  static_cast<void>(loam_compact(heap_, nullptr));
  loam_heap_summary after{};
  after.size = sizeof after;
  ASSERT_EQ(loam_summary(heap_, &after), LOAM_OK);
  EXPECT_EQ(after.cached, 0u);
  EXPECT_EQ(loam_validate(heap_, nullptr), LOAM_OK);
}

TEST(GuardedHeaps, ServeRandomCallsInOrder) {
  loam::heap heap({.maximum = size_t{8} << 20, .canary = true, .poison = true, .name = "both"});
  loam_heap* const handle = heap.get();
  std::vector<std::pair<unsigned char*, size_t>> live;
  uint64_t seed = 1;
  for (int i = 0; i < 30000; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const size_t size = (seed >> 40) % ((seed >> 33) % 50 == 0 ? 60000 : 700);
    const size_t at = live.empty() ? 0 : (seed >> 20) % live.size();
    if (live.size() > 150 || (!live.empty() && (seed >> 60) < 6)) {
      for (size_t k = 0; k < live[at].second; ++k)
        ASSERT_EQ(live[at].first[k], static_cast<unsigned char>(k));
      if ((seed >> 58) % 3 == 0) {
        auto* moved = static_cast<unsigned char*>(loam_realloc(handle, live[at].first, size));
        ASSERT_NE(moved, nullptr);
        const size_t kept = size < live[at].second ? size : live[at].second;
        for (size_t k = 0; k < kept; ++k) ASSERT_EQ(moved[k], static_cast<unsigned char>(k));
        for (size_t k = kept; k < size; ++k) moved[k] = static_cast<unsigned char>(k);
        live[at] = {moved, size};
        continue;
      }
      ASSERT_EQ(loam_free(handle, live[at].first), LOAM_OK);
      live[at] = live.back();
      live.pop_back();
      continue;
    }
    auto* block = static_cast<unsigned char*>(loam_alloc(handle, size));
    ASSERT_NE(block, nullptr);
    for (size_t k = 0; k < size; ++k) block[k] = static_cast<unsigned char>(k);
    live.emplace_back(block, size);
    if (i % 1000 == 0) {
      ASSERT_EQ(loam_validate(handle, nullptr), LOAM_OK);
    }
  }
  for (const auto& [block, size] : live) ASSERT_EQ(loam_free(handle, block), LOAM_OK);
  EXPECT_EQ(loam_validate(handle, nullptr), LOAM_OK);
}

}  // namespace
