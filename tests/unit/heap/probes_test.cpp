// What a profiler learns that attaches while the heap works. Without a profiler it costs nothing.
#include <map>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cache/thread_cache.h"
#include "fake_system/fake.h"
#include "heap/heap.h"
#include "observers/detours.h"
#include "observers/memory_probes.h"
#include "random.h"

namespace loam {
namespace {

namespace fake = os::fake;

class ProbesTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::listen_to_probes(false, false);
    settle();
    fake::take_probed();
  }
  void TearDown() override {
    fake::listen_to_probes(false, false);
    settle();
  }

  // Makes calls, as any program does, until the thread has looked at its probes.
  static void settle() {
    for (int i = 0; i < 2000; ++i) heap::free(heap::allocate(64));
  }

  struct Sums {
    double bytes = 0, objects = 0;
    size_t samples = 0, frees = 0;
    std::map<const void*, size_t> live;
  };
  static Sums sums() {
    Sums s;
    for (const auto& [block, bytes, weight] : fake::take_probed()) {
      if (weight == 0) {
        EXPECT_EQ(s.live.erase(block), 1u) << "a free of a block that was not sampled";
        ++s.frees;
        continue;
      }
      EXPECT_TRUE(s.live.emplace(block, bytes).second) << "sampled twice without a free";
      s.bytes += static_cast<double>(weight);
      s.objects += static_cast<double>(weight) / static_cast<double>(bytes);
      ++s.samples;
    }
    return s;
  }
};

TEST_F(ProbesTest, NobodyListensAndNothingIsSaid) {
  std::vector<void*> blocks;
  for (int i = 0; i < 100'000; ++i) blocks.push_back(heap::allocate(200));
  for (void* block : blocks) heap::free(block);
  EXPECT_EQ(detours(), 0u);
  EXPECT_TRUE(fake::take_probed().empty());
}

TEST_F(ProbesTest, WeightsAddUpToWhatWasRequested) {
  fake::listen_to_probes(true, true);
  settle();
  ASSERT_EQ(detours(), unsigned{kProbed});
  fake::take_probed();
  test::Random random(3);
  std::vector<void*> slots(1000);
  double bytes = 0;
  constexpr int kBlocks = 2'000'000;
  for (int i = 0; i < kBlocks; ++i) {
    void*& slot = slots[random.next() % slots.size()];
    heap::free(slot);
    const size_t size = 16 + random.next() % (i % 16 == 0 ? 200'000 : 16'000);
    slot = heap::allocate(size);
    bytes += static_cast<double>(size);
  }
  for (void* slot : slots) heap::free(slot);
  const Sums s = sums();
  // About 70,000 samples: the standard deviation is 0.4 %.
  EXPECT_NEAR(s.bytes / bytes, 1, 0.02) << s.samples;
  EXPECT_NEAR(s.objects / kBlocks, 1, 0.05);
  EXPECT_EQ(s.frees, s.samples);
  EXPECT_TRUE(s.live.empty());
}

TEST_F(ProbesTest, EveryWayToABlockIsSeen) {
  fake::listen_to_probes(true, true);
  settle();
  fake::take_probed();
  // Each of these is almost certainly sampled: its chance of no sample is exp(-64).
  constexpr size_t kLong = 64 * MemoryProbes::kMeanBytes;
  const auto expect_one = [](const void* block, size_t bytes) {
    const auto said = fake::take_probed();
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0].block, block);
    EXPECT_EQ(said[0].bytes, bytes);
    EXPECT_EQ(said[0].weight, bytes == 0 ? 0 : bytes);
  };
  void* block = heap::allocate(kLong);
  expect_one(block, kLong);
  heap::free(block);
  expect_one(block, 0);
  block = heap::allocate_aligned(size_t{1} << 21, kLong);
  expect_one(block, kLong);
  heap::free(block);
  expect_one(block, 0);
}

TEST_F(ProbesTest, ABlockThatCouldNotGrowIsStillLive) {
  fake::listen_to_probes(true, true);
  settle();
  fake::take_probed();
  constexpr size_t kLong = 2 * kMaxRun.bytes();  // a mapping of its own, almost certainly sampled
  void* const block = heap::allocate(kLong);
  fake::fail_any(1, fake::kForever);
  EXPECT_EQ(heap::reallocate(block, 4 * kLong), nullptr);
  fake::clear_failures();
  const Sums s = sums();
  ASSERT_EQ(s.live.size(), 1u);
  EXPECT_EQ(s.live.begin()->first, block);
  EXPECT_EQ(s.live.begin()->second, kLong);
  heap::free(block);
  const auto said = fake::take_probed();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].block, block);
}

TEST_F(ProbesTest, AThreadThatStartsLaterIsSeen) {
  fake::listen_to_probes(true, true);
  settle();
  fake::take_probed();
  std::thread([] {
    for (int i = 0; i < 20'000; ++i) heap::free(heap::allocate(10'000));
  }).join();
  // About 380 samples
  const Sums s = sums();
  EXPECT_GT(s.samples, 200u);
  EXPECT_EQ(s.frees, s.samples);
}

TEST_F(ProbesTest, WhoGoesLeavesTheFastPaths) {
  fake::listen_to_probes(true, true);
  settle();
  std::vector<void*> blocks;
  for (int i = 0; i < 2000; ++i) blocks.push_back(heap::allocate(10'000));
  fake::listen_to_probes(false, false);
  settle();
  EXPECT_EQ(detours(), 0u);
  fake::take_probed();
  for (void* block : blocks) heap::free(block);
  EXPECT_TRUE(fake::take_probed().empty());
  // For the next profiler the same addresses are other blocks.
  fake::listen_to_probes(true, true);
  settle();
  const Sums s = sums();
  EXPECT_EQ(s.frees + s.live.size(), s.samples);
  void* small = heap::allocate(64);
  EXPECT_TRUE(current_cache->is_valid());
  heap::free(small);
}

TEST_F(ProbesTest, WithoutAListenerForFreesNoBlockIsFollowed) {
  fake::listen_to_probes(true, false);
  settle();
  for (int i = 0; i < 20'000; ++i) heap::free(heap::allocate(10'000));
  const auto said = fake::take_probed();
  EXPECT_GT(said.size(), 200u);
  for (const fake::Probed& probed : said) EXPECT_NE(probed.weight, 0u) << "a free";
}

}  // namespace
}  // namespace loam
