#include "small/small_heap.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "random.h"
#include "small/steady_use.h"

namespace loam {
namespace {

namespace fake = os::fake;
using Wait = SmallHeap::Wait;

class SmallHeapTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    pages->keep_falls();
  }

  std::vector<void*> take(unsigned size_class, unsigned wanted) {
    std::vector<void*> out(wanted);
    unsigned got = 0;
    // One call brings the blocks at hand. It may stop before it would need fresh memory.
    for (unsigned more = 1; more != 0 && got < wanted; got += more) {
      // Takes a few at a time, as caches do.
      more = heap->take({size_class, out.data() + got, wanted - got < 64 ? wanted - got : 64});
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
  std::unique_ptr<SmallHeap> heap = std::make_unique<SmallHeap>(*pages);
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

TEST_F(SmallHeapTest, WhoHasEnoughTakesNoPartOfAFreshSpan) {
  const unsigned c = class_for(16384), slots = kSizeClasses[c].slots;
  void* blocks[16];
  ASSERT_GE(std::size(blocks), 2 * slots);
  unsigned got = heap->take({c, blocks, 1});
  ASSERT_EQ(got, 1u);
  got += heap->take({c, blocks + got, 2 * slots, nullptr, slots});
  EXPECT_EQ(got, 2 * slots) << "what was left of the first, and one more";
  EXPECT_EQ(heap->stats(c).free_slots, 0u);
  const unsigned all = heap->take({c, blocks + got, 2 * slots, nullptr, 2 * slots});
  EXPECT_EQ(all, 2 * slots) << "enough is never less than what was asked for, unless it is said";
  heap->give(c, blocks, got + all, Wait::kYes);
  expect_empty();
}

// All slots of a span are taken and given at once: upwards, downwards, and with a span between them
// that is not whole.
TEST_F(SmallHeapTest, WholeSpansComeAndGoWithoutAList) {
  const unsigned c = class_for(16384), slots = kSizeClasses[c].slots;
  std::vector<void*> blocks = take(c, 8 * slots);
  ASSERT_EQ(blocks.size(), 8 * slots);
  EXPECT_EQ(heap->stats(c).free_slots, 0u);
  void* const stays = blocks[5 * slots];
  blocks.erase(blocks.begin() + 5 * slots);
  for (int round = 0; round < 4; ++round) {
    give(c, blocks);
    EXPECT_TRUE(heap->is_valid());
    EXPECT_TRUE(pages->is_valid());
    EXPECT_EQ(heap->stats(c).spans, 1u) << "the one that is in use";
    blocks = take(c, 8 * slots - 1);
    ASSERT_EQ(blocks.size(), 8 * slots - 1);
    EXPECT_TRUE(heap->is_valid());
    if (round % 2 == 0) std::reverse(blocks.begin(), blocks.end());
  }
  blocks.push_back(stays);
  give(c, blocks);
  expect_empty();
}

TEST_F(SmallHeapTest, BackedPagesInShortRunsAreUsedBeforeFreshOnes) {
  for (const bool pure : {false, true}) {
    heap->keep_spans_pure(pure);
    // Every second one of the spans of one page is free.
    const unsigned short_class = class_for(64), long_class = class_for(432);
    const unsigned slots = kSizeClasses[short_class].slots;
    ASSERT_EQ(kSizeClasses[short_class].pages, 1);
    ASSERT_GT(kSizeClasses[long_class].pages, 1);
    std::vector<void*> kept, freed;
    for (void* block : take(short_class, slots * 3 * kPagesPerSlab)) {
      ((reinterpret_cast<uintptr_t>(block) / kPageBytes) % 2 == 0 ? freed : kept).push_back(block);
    }
    test::use_for_a_while(*pages);
    give(short_class, freed);
    const PageStats before = pages->stats();
    ASSERT_GE(before.dirty.count, kPagesPerSlab);
    const std::vector<void*> blocks = take(long_class, 1000);
    ASSERT_EQ(blocks.size(), 1000u);
    const uint64_t fresh = pages->stats().fresh_pages - before.fresh_pages;
    if (pure) {
      EXPECT_GE(fresh, 1000 * 432 / kPageBytes)
          << "spans that are checked slot by slot stay their class's";
    } else {
      EXPECT_EQ(fresh, 0u);
    }
    for (void* block : blocks) {
      if (class_at(block) == kMixedClass) {
        heap->mixed().give(&block, 1);
      } else {
        give(long_class, {block});
      }
    }
    give(short_class, kept);
    expect_empty();
    pages->purge_all();
  }
}

/// Holds every bin's lock for a scope, as a thread that refills holds one.
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
  // The next thread that takes the lock returns them to the bin, and may hand them out.
  const std::vector<void*> more = take(c, 1);
  stats = heap->stats(c);
  EXPECT_EQ(stats.queued, 0u);
  EXPECT_EQ(stats.remote_batches, 3u) << "30 pointers in batches of 14";
  EXPECT_EQ(stats.slots - stats.free_slots, 21u);
  give(c, more);
  give(c, {blocks.begin() + 30, blocks.end()});
  expect_empty();
}

/// Lets the other threads run until one of them waits for a lock, or `ended`.
void wait_for_a_waiter(const std::atomic<bool>& ended) {
  while (fake::waits() == 0 && !ended) std::this_thread::yield();
}

TEST_F(SmallHeapTest, ASenderThatFindsTheQueueFullEmptiesItItself) {
  const unsigned c = class_for(32768);  // the shortest queue
  const std::vector<void*> blocks = take(c, 100);
  std::atomic<bool> ended{false};
  std::thread sender;
  {
    BusyBins busy(*heap);
    sender = std::thread([&] {
      for (void* block : blocks) give(c, {block}, Wait::kNo);
      ended = true;
    });
    wait_for_a_waiter(ended);
    EXPECT_FALSE(ended) << "it fills the queue and then waits for the lock";
  }
  sender.join();
  const BinStats stats = heap->stats(c);
  EXPECT_LE(stats.queued, 2u * RemoteBatch::kPointers + 1) << "an idle owner strands little";
  EXPECT_GT(stats.remote_batches, 2u * RemoteBatch::kPointers)
      << "of one block each, all that was queued";
  expect_empty();
}

TEST_F(SmallHeapTest, WithoutMemoryForABatchTheSenderWaitsInstead) {
  const unsigned c = class_for(64);
  const std::vector<void*> blocks = take(c, 10);
  // Either the pool is empty and the arena is refused, or the pool has memory and it is used. In
  // both cases all blocks come home.
  fake::fail(fake::Call::kReserveMetadata);
  fake::fail(fake::Call::kCommitMetadata);
  std::atomic<bool> ended{false};
  std::thread sender;
  {
    BusyBins busy(*heap);
    sender = std::thread([&] {
      give(c, blocks, Wait::kNo);
      ended = true;
    });
    wait_for_a_waiter(ended);
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
        const unsigned got = heap->take({c, out, random.between(1, 40)});
        for (unsigned i = 0; i < got; ++i) {
          // This thread returns the block that was in the table, which mostly another thread took.
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

/// Frees nine blocks in ten of one size at random. Then takes blocks of another size.
class PhaseChange : public SmallHeapTest {
 protected:
  static constexpr size_t kBytes = size_t{2} << 20;

  void fill_and_thin(size_t bytes) {
    const unsigned c = class_for(bytes);
    kept = take(c, unsigned(kBytes / bytes));
    for (size_t i = 0; i < kept.size(); ++i) std::swap(kept[i], kept[random.below(kept.size())]);
    const std::vector<void*> freed(kept.begin() + kept.size() / 10, kept.end());
    kept.resize(kept.size() / 10);
    give(c, freed);
    first = c;
  }
  void free_all(unsigned c, const std::vector<void*>& second) {
    give(first, kept);
    for (void* block : second) {
      if (class_at(block) == kMixedClass) {
        heap->give_mixed(&block, 1);
      } else {
        give(c, {block});
      }
    }
    EXPECT_EQ(heap->mixed().stats().spans, 0u);
    expect_empty();
  }
  /// The bytes of fresh pages, which the system had to back.
  [[nodiscard]] uint64_t fresh_bytes() const { return pages->stats().fresh_pages * kPageBytes; }

  test::Random random = test::seeded(5);
  std::vector<void*> kept;
  unsigned first = 0;
};

TEST_F(PhaseChange, TheNextSizeMovesIntoTheHoles) {
  LOAM_TRACE_SEED(random);
  // Smaller blocks use a part of the holes. Larger ones need free neighbours.
  for (const auto& [from, to, share] : {std::tuple{256, 64, 80},
                                        {256, 96, 75},
                                        {1024, 16, 80},
                                        {48, 32, 70},
                                        {64, 256, 40},
                                        {32, 112, 40}}) {
    fill_and_thin(size_t(from));
    const uint64_t before = fresh_bytes();
    const std::vector<void*> second =
        take(class_for(size_t(to)), unsigned(kBytes * share / 100 / to));
    // A search for donors that found none is not repeated for some growths. That happens once
    // before and once after.
    EXPECT_LE(fresh_bytes() - before, kBytes / 8)
        << share << " % of the memory as blocks of " << to << " bytes after " << from;
    EXPECT_GT(heap->mixed().stats().spans, 0u);
    EXPECT_TRUE(heap->is_valid());
    free_all(class_for(size_t(to)), second);
    ASSERT_FALSE(HasFailure());
    pages = std::make_unique<PageHeap>();
    heap = std::make_unique<SmallHeap>(*pages);
  }
}

TEST_F(PhaseChange, ABusyClassKeepsItsSpans) {
  // Free slots of a bin whose own use rises and falls are not from a past phase.
  const unsigned a = class_for(64), b = class_for(256);
  std::vector<void*> busy = take(a, 20'000);
  for (int breath = 0; breath < 20; ++breath) {
    const std::vector<void*> out(busy.end() - 2'000, busy.end());
    busy.resize(busy.size() - 2'000);
    give(a, out);
    const std::vector<void*> other = take(b, 200);
    const std::vector<void*> in = take(a, 2'000);
    busy.insert(busy.end(), in.begin(), in.end());
    for (void* block : other) EXPECT_EQ(class_at(block), b);
    give(b, other);
  }
  EXPECT_EQ(heap->mixed().stats().converted, 0u);
  give(a, busy);
  expect_empty();
}

TEST_F(PhaseChange, PureSpansStayPure) {
  heap->keep_spans_pure();
  fill_and_thin(256);
  const std::vector<void*> second = take(class_for(64), 10'000);
  for (void* block : second) ASSERT_EQ(class_at(block), class_for(64));
  EXPECT_EQ(heap->mixed().stats().converted, 0u);
  free_all(class_for(64), second);
}

TEST_F(PhaseChange, ASlotIsASlotWhateverSpansAreMixed) {
  fill_and_thin(256);
  const unsigned c = class_for(64);
  const std::vector<void*> second = take(c, 10'000);
  ASSERT_GT(heap->mixed().stats().spans, 0u);
  std::vector<void*> slots(500);
  ASSERT_EQ(heap->take_slots({c, slots.data(), 500}), 500u);
  for (void* slot : slots) {
    ASSERT_EQ(class_at(slot), c);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(slot) % 64, 0u);
  }
  give(c, slots);
  free_all(c, second);
}

TEST_F(PhaseChange, RefusedMemoryIsMadeUpForByDonors) {
  fill_and_thin(512);
  // The last search for donors found none, and would not be repeated soon.
  const unsigned big = class_for(1024), c = class_for(112);
  heap->keep_spans_pure();
  const std::vector<void*> none = take(big, 200);
  fake::fail(fake::Call::kReserve);
  fake::fail(fake::Call::kCommit);
  std::vector<void*> filler;
  for (void* block = nullptr; heap->take_slots({class_for(32768), &block, 1}) == 1;)
    filler.push_back(block);
  for (void* block = nullptr; heap->take_slots({c, &block, 1}) == 1;) filler.push_back(block);
  heap->keep_spans_pure(false);
  const std::vector<void*> second = take(c, unsigned(kBytes / 2 / 112));
  EXPECT_EQ(second.size(), kBytes / 2 / 112);
  for (void* block : second) ASSERT_EQ(class_at(block), kMixedClass);
  fake::clear_failures();
  for (void* block : filler) give(unsigned(class_at(block)), {block});
  give(big, none);
  free_all(c, second);
}

TEST_F(PhaseChange, BlocksInARemoteQueueFindTheirWayHome) {
  fill_and_thin(256);
  {
    BusyBins busy(*heap);
    std::thread([&] { give(first, {kept.begin(), kept.begin() + 40}, Wait::kNo); }).join();
  }
  kept.erase(kept.begin(), kept.begin() + 40);
  ASSERT_EQ(heap->stats(first).queued, 40u);
  const std::vector<void*> second = take(class_for(64), 10'000);
  EXPECT_GT(heap->mixed().stats().spans, 0u);
  const std::vector<void*> drained = take(first, 1);
  EXPECT_EQ(heap->stats(first).queued, 0u);
  EXPECT_TRUE(heap->is_valid());
  for (void* block : drained) kept.push_back(block);
  free_all(class_for(64), second);
}

TEST_F(PhaseChange, ThreadsInDifferentPhasesShareTheHoles) {
  constexpr unsigned kThreads = 4;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      test::Random mine = test::seeded(t + 40);
      std::vector<std::pair<void*, unsigned>> blocks;
      const auto drop = [&](size_t keep) {
        for (; blocks.size() > keep; blocks.pop_back()) {
          std::swap(blocks.back(), blocks[mine.below(blocks.size())]);
          auto [block, c] = blocks.back();
          if (class_at(block) == kMixedClass) {
            heap->give_mixed(&block, 1);
          } else {
            heap->give(c, &block, 1, mine.chance(80) ? Wait::kNo : Wait::kYes);
          }
        }
      };
      for (unsigned phase = 0; phase < 8; ++phase) {
        const unsigned c = mine.between(1, class_for(MixedHeap::kLargestBlock));
        const size_t count = blocks.size() + (size_t{256} << 10) / kSizeClasses[c].bytes;
        while (blocks.size() < count) {
          void* out[40];
          const unsigned got = heap->take({c, out, mine.between(1, 40)});
          for (unsigned i = 0; i < got; ++i) blocks.emplace_back(out[i], c);
        }
        drop(blocks.size() / 10);
      }
      drop(0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(heap->is_valid());
  EXPECT_GT(heap->mixed().stats().converted, 0u);
  expect_empty();
}

}  // namespace
}  // namespace loam
