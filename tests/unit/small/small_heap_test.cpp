#include "small/small_heap.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "os/fake.h"
#include "random.h"

namespace loam {
namespace {

namespace fake = os::fake;
using Wait = SmallHeap::Wait;

class SmallHeapTest : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }

  std::vector<void*> take(unsigned size_class, unsigned wanted) {
    std::vector<void*> out(wanted);
    unsigned got = 0;
    // One call brings what is at hand; it may stop where fresh memory would begin.
    for (unsigned more = 1; more != 0 && got < wanted; got += more) {
      more = heap->take(size_class, out.data() + got, wanted - got);
    }
    out.resize(got);
    return out;
  }
  void give(unsigned size_class, const std::vector<void*>& blocks, Wait wait = Wait::kYes) {
    for (size_t i = 0; i < blocks.size(); i += SmallHeap::kMaxGive) {
      const size_t left = blocks.size() - i;
      const size_t here = left < SmallHeap::kMaxGive ? left : SmallHeap::kMaxGive;
      heap->give(size_class, blocks.data() + i, static_cast<unsigned>(here), wait);
    }
  }
  void expect_empty() {
    heap->compact();
    EXPECT_EQ(pages->stats().used.count, 0u);
    EXPECT_TRUE(heap->is_valid());
    EXPECT_TRUE(pages->is_valid());
  }

  std::unique_ptr<PageHeap> pages = std::make_unique<PageHeap>();
  std::unique_ptr<SmallHeap> heap = std::make_unique<SmallHeap>(*pages, uint16_t{0}, true);
};

TEST_F(SmallHeapTest, EveryClassTakesAndGives) {
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const std::vector<void*> blocks = take(c, 200);
    ASSERT_EQ(blocks.size(), 200u);
    for (void* block : blocks) ASSERT_EQ(class_at(block), c);
    EXPECT_EQ(heap->stats(c).slots - heap->stats(c).free_slots, 200u);
    give(c, blocks);
    ASSERT_TRUE(heap->is_valid());
  }
  expect_empty();
}

TEST_F(SmallHeapTest, BlocksOfAPrivateHeapHaveNoClassInTheMapButTheirSpan) {
  heap = std::make_unique<SmallHeap>(*pages, uint16_t{7}, false);
  const std::vector<void*> blocks = take(5, 10);
  for (void* block : blocks) {
    EXPECT_EQ(class_at(block), 0u);
    const Span* span = span_at(reinterpret_cast<uintptr_t>(block));
    ASSERT_NE(span, nullptr);
    EXPECT_EQ(span->heap, 7);
    EXPECT_EQ(index_of(span->size_class), 5u);
  }
  give(5, blocks);
  expect_empty();
}

/// Holds every bin's lock for a scope, as somebody who refills holds one.
class BusyBins {
 public:
  explicit BusyBins(SmallHeap& heap) : heap_(heap) { heap_.lock_all(); }
  ~BusyBins() { heap_.unlock_all(); }
  BusyBins(const BusyBins&) = delete;
  BusyBins& operator=(const BusyBins&) = delete;

 private:
  SmallHeap& heap_;
};

TEST_F(SmallHeapTest, AFlushThatMeetsABusyBinLeavesItsBlocksInTheQueue) {
  const unsigned c = class_for(64);
  const std::vector<void*> blocks = take(c, 50);
  {
    BusyBins busy(*heap);
    std::thread([&] { give(c, {blocks.begin(), blocks.begin() + 30}, Wait::kNo); }).join();
  }
  BinStats stats = heap->stats(c);
  EXPECT_EQ(stats.queued, 30u);
  EXPECT_EQ(stats.lock_refusals, 1u);
  EXPECT_EQ(stats.slots - stats.free_slots, 50u) << "not home yet";
  // Whoever takes the lock next takes them home, and may hand them out.
  const std::vector<void*> more = take(c, 1);
  stats = heap->stats(c);
  EXPECT_EQ(stats.queued, 0u);
  EXPECT_EQ(stats.remote_batches, 3u) << "30 pointers in batches of 14";
  EXPECT_EQ(stats.slots - stats.free_slots, 21u);
  give(c, more);
  give(c, {blocks.begin() + 30, blocks.end()});
  expect_empty();
}

TEST_F(SmallHeapTest, ASenderThatFindsTheQueueFullEmptiesItItself) {
  const unsigned c = class_for(32768);  // the shortest queue
  const std::vector<void*> blocks = take(c, 100);
  std::thread sender;
  {
    BusyBins busy(*heap);
    std::atomic<bool> started{false};
    sender = std::thread([&] {
      started = true;
      for (void* block : blocks) give(c, {block}, Wait::kNo);
    });
    while (!started) std::this_thread::yield();
    // It fills the queue and then waits for the lock; it cannot end before the bin is free.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  sender.join();
  const BinStats stats = heap->stats(c);
  EXPECT_LE(stats.queued, 2u * RemoteBatch::kPointers + 1) << "an idle owner strands little";
  EXPECT_GT(stats.remote_batches, 0u);
  expect_empty();
}

TEST_F(SmallHeapTest, WithoutMemoryForABatchTheSenderWaitsInstead) {
  const unsigned c = class_for(64);
  const std::vector<void*> blocks = take(c, 10);
  // Nothing is in the pool and the arena is refused, or something is and it is used: either way all
  // blocks come home.
  fake::fail(fake::Call::kReserveMetadata);
  fake::fail(fake::Call::kCommitMetadata);
  std::thread sender;
  {
    BusyBins busy(*heap);
    sender = std::thread([&] { give(c, blocks, Wait::kNo); });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  sender.join();
  fake::clear_failures();
  expect_empty();
}

TEST_F(SmallHeapTest, ManyThreadsTakeAndGiveEachOthersBlocks) {
  constexpr unsigned kThreads = 4, kRounds = 300;
  const unsigned c = class_for(64);
  std::atomic<void*> table[64] = {};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      test::Random random = test::seeded(t);
      for (unsigned round = 0; round < kRounds; ++round) {
        void* out[40];
        const unsigned got = heap->take(c, out, random.between(1, 40));
        for (unsigned i = 0; i < got; ++i) {
          // Whatever stood in the table, somebody else's most of the time, goes home from here.
          void* other = table[random.below(64)].exchange(out[i]);
          if (other != nullptr)
            heap->give(c, &other, 1, random.chance(80) ? Wait::kNo : Wait::kYes);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& place : table) {
    void* block = place.exchange(nullptr);
    if (block != nullptr) give(c, {block});
  }
  EXPECT_TRUE(heap->is_valid());
  expect_empty();
}

}  // namespace
}  // namespace loam
