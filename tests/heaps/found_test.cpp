// Errors that the stress test of heaps (tests/stress/heaps.cpp) found: a test for each.
#include <gtest/gtest.h>
#include <loam/loam.h>
#include <loam/stats.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace {

struct loam_stats figures(loam_heap* heap) {
  struct loam_stats stats = {};
  stats.size = sizeof stats;
  EXPECT_EQ(loam_stats(heap, &stats), LOAM_OK);
  return stats;
}

class Found : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override {
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.flags = GetParam();
    heap_ = loam_heap_create(&options);
    ASSERT_NE(heap_, nullptr);
  }
  void TearDown() override { EXPECT_EQ(loam_heap_destroy(heap_), LOAM_OK); }

  loam_heap* heap_ = nullptr;
};

TEST_P(Found, ALargeBlockThatShrinksToNothingLeavesTheFiguresWhole) {
  const struct loam_stats before = figures(nullptr);
  void* block = loam_alloc(heap_, 100'000);
  ASSERT_NE(block, nullptr);
  ASSERT_EQ(loam_try_resize(heap_, block, 0), LOAM_OK);
  EXPECT_EQ(loam_size(heap_, block), 0u);
  struct loam_stats now = figures(nullptr);
  EXPECT_EQ(now.live_large_blocks, before.live_large_blocks + 1);
  EXPECT_EQ(now.live_large_bytes, before.live_large_bytes + 4096);
  ASSERT_EQ(loam_free(heap_, block), LOAM_OK);
  now = figures(nullptr);
  EXPECT_EQ(now.live_large_blocks, before.live_large_blocks);
  EXPECT_EQ(now.live_large_bytes, before.live_large_bytes);
  EXPECT_EQ(now.large_rounding_bytes, before.large_rounding_bytes);
  EXPECT_EQ(now.used_bytes + now.free_run_bytes + now.metadata_bytes, now.committed_bytes);
}

TEST_P(Found, AMappingShrinksToNothingOrKeepsItsContent) {
  constexpr size_t kBytes = size_t{40} << 20;
  auto* block = static_cast<unsigned char*>(loam_alloc(heap_, kBytes));
  ASSERT_NE(block, nullptr);
  memset(block, 0x5a, 10'000);
  // A block with a neighbour behind it cannot grow in place. It keeps its content in either case.
  if (loam_try_resize(heap_, block, size_t{1} << 45) != LOAM_OK) {
    EXPECT_EQ(block[9'999], 0x5a);
  }
  ASSERT_EQ(loam_try_resize(heap_, block, 5'000), LOAM_OK);
  EXPECT_EQ(block[4'999], 0x5a);
  ASSERT_EQ(loam_try_resize(heap_, block, 0), LOAM_OK);
  EXPECT_EQ(loam_size(heap_, block), 0u);
  EXPECT_EQ(loam_validate(heap_, block), LOAM_OK);
  EXPECT_EQ(loam_free(heap_, block), LOAM_OK);
}

TEST_P(Found, FreedBlocksThatAreHeldBackAreNoLiveBlocks) {
  void* blocks[100];
  for (void*& block : blocks) {
    block = loam_alloc(heap_, 60);
    ASSERT_NE(block, nullptr);
  }
  for (unsigned i = 0; i < 90; ++i) ASSERT_EQ(loam_free(heap_, blocks[i]), LOAM_OK);
  const struct loam_stats now = figures(heap_);
  EXPECT_EQ(now.live_blocks, 10u);
  EXPECT_EQ(now.live_small_blocks, 10u);
  for (unsigned i = 90; i < 100; ++i) ASSERT_EQ(loam_free(heap_, blocks[i]), LOAM_OK);
  EXPECT_EQ(figures(heap_).live_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(Flags, Found,
                         ::testing::Values(0u, unsigned{LOAM_HEAP_ZERO_ON_FREE},
                                           unsigned{LOAM_HEAP_CANARY}, unsigned{LOAM_HEAP_POISON}),
                         [](const ::testing::TestParamInfo<unsigned>& info) {
                           return info.param == 0                        ? "Plain"
                                  : info.param == LOAM_HEAP_ZERO_ON_FREE ? "ZeroOnFree"
                                  : info.param == LOAM_HEAP_CANARY       ? "Canary"
                                                                         : "Poison";
                         });

// Sparse spans become mixed for a request of another size. Other data then replaces a span's free
// bits. A thread that looks up a live block of the span at this moment, without a lock, must not
// take that data for free bits. If one does, this test fails with high probability.
TEST(FoundDefault, ALiveBlockIsOneWhileItsSpanBecomesMixed) {
  constexpr size_t kBlocks = 8192, kKept = kBlocks / 128;
  loam_heap* const heap = loam_default();
  std::vector<void*> kept(kKept), blocks(kBlocks), others(kBlocks);
  std::atomic<int> order{0}, doing{0};
  std::atomic<size_t> wrong{0};
  std::thread looker([&] {
    for (int now; (now = order) != 2;) {
      if (now == 1) {
        for (const void* block : kept) wrong += loam_size(heap, block) == SIZE_MAX;
      }
      doing = now;
    }
  });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (std::chrono::steady_clock::now() < until && wrong == 0) {
    for (void*& block : blocks) block = loam_alloc(heap, 256);
    for (size_t i = 0; i < kBlocks; ++i) {
      if (i % 128 == 43) {
        kept[i / 128] = blocks[i];
      } else {
        EXPECT_EQ(loam_free(heap, blocks[i]), LOAM_OK);
      }
    }
    EXPECT_EQ(loam_trim(heap), LOAM_OK);
    order = 1;
    while (doing != 1) std::this_thread::yield();
    for (void*& block : others) block = loam_alloc(heap, 176);
    order = 0;
    while (doing != 0) std::this_thread::yield();
    for (void* block : others) EXPECT_EQ(loam_free(heap, block), LOAM_OK);
    for (void* block : kept) EXPECT_EQ(loam_free(heap, block), LOAM_OK);
    EXPECT_EQ(loam_trim(heap), LOAM_OK);
  }
  order = 2;
  looker.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
