// Blocks on their way from one thread to another.
#include "small/transfer_stash.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "map/metadata.h"
#include "small/size_classes.h"
#include "small/small_heap.h"

namespace loam {
namespace {

namespace fake = os::fake;

void* pointer(uintptr_t n) { return reinterpret_cast<void*>(n); }
std::vector<void*> pointers(uintptr_t first, unsigned count) {
  std::vector<void*> out;
  for (unsigned i = 0; i < count; ++i) out.push_back(pointer(first + i));
  return out;
}

TEST(TransferStash, ABatchOfEveryClassHoldsAnOverflowAndIsOnePieceOfMetadata) {
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    const unsigned slots = TransferStash::batch_slots(c);
    EXPECT_LE(slots, TransferStash::kMostPointers);
    EXPECT_LE(slots * size_t{kSizeClasses[c].bytes}, TransferStash::kMostBytes);
    EXPECT_GE(slots, 2u);
  }
}

TEST(TransferStash, WhatWasFreedLastIsTakenFirst) {
  TransferStash stash;
  const unsigned c = class_for(64);
  ASSERT_TRUE(stash.put(c, pointers(100, 10).data(), 10));
  ASSERT_TRUE(stash.put(c, pointers(200, 10).data(), 10));
  EXPECT_EQ(stash.blocks(), 20u);
  void* out[16];
  ASSERT_EQ(stash.take(out, 4), 4u);
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(out[i], pointer(206 + i));
  ASSERT_EQ(stash.take(out, 16), 6u) << "one batch a call";
  for (unsigned i = 0; i < 6; ++i) EXPECT_EQ(out[i], pointer(200 + i));
  ASSERT_EQ(stash.take(out, 16), 10u);
  EXPECT_EQ(out[0], pointer(100));
  EXPECT_EQ(stash.take(out, 16), 0u);
  EXPECT_EQ(stash.blocks(), 0u);
  stash.release(c, nullptr);
}

TEST(TransferStash, ABatchIsTakenWholeWhereThereIsRoom) {
  TransferStash stash;
  const unsigned c = class_for(64);
  ASSERT_TRUE(stash.put(c, pointers(100, 10).data(), 10));
  void* out[16];
  ASSERT_EQ(stash.take(out, 4, 9), 4u) << "no more than wanted, as it is longer";
  ASSERT_EQ(stash.take(out, 4, 6), 6u);
  for (unsigned i = 0; i < 6; ++i) EXPECT_EQ(out[i], pointer(100 + i));
  EXPECT_EQ(stash.blocks(), 0u);
  stash.release(c, nullptr);
}

TEST(TransferStash, ItIsBoundedInBatchesAndInBytes) {
  for (const size_t bytes : {size_t{16}, size_t{64}, size_t{1024}, size_t{32768}}) {
    TransferStash stash;
    const unsigned c = class_for(bytes);
    unsigned batches = 0;
    while (stash.put(c, pointers(1000, TransferStash::batch_slots(c)).data(),
                     TransferStash::batch_slots(c)))
      ++batches;
    EXPECT_LE(batches, TransferStash::kMostBatches);
    EXPECT_LE(stash.blocks() * bytes, TransferStash::kMostBytes);
    EXPECT_GE(batches, 2u) << bytes;
    stash.release(c, stash.take_idle(true));
    EXPECT_EQ(stash.blocks(), 0u);
  }
}

TEST(TransferStash, RecordsAreUsedAgainAndGoBack) {
  TransferStash stash;
  const unsigned c = class_for(64);
  const size_t before = metadata.used_bytes();
  void* out[256];
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(stash.put(c, pointers(1, 200).data(), 200));
    ASSERT_EQ(stash.take(out, 200), 200u);
  }
  EXPECT_EQ(metadata.used_bytes() - before, 2048u) << "one record, again and again";
  stash.release(c, nullptr);
  EXPECT_EQ(metadata.used_bytes(), before);
}

TEST(TransferStash, OnlyWhatNobodyWantedIsIdle) {
  TransferStash stash;
  const unsigned c = class_for(64);
  for (unsigned i = 0; i < 4; ++i)
    ASSERT_TRUE(stash.put(c, pointers(100 * (i + 1), 10).data(), 10));
  EXPECT_EQ(stash.take_idle(false), nullptr) << "they just came";
  void* out[30];
  ASSERT_EQ(stash.take(out, 10), 10u);
  ASSERT_TRUE(stash.put(c, pointers(900, 10).data(), 10));
  // Three batches were never touched. The top one was in use.
  TransferStash::Batch* idle = stash.take_idle(false);
  unsigned found = 0;
  for (TransferStash::Batch* b = idle; b != nullptr; b = b->next) {
    ++found;
    EXPECT_NE(b->pointers()[0], pointer(900)) << "the warm one stays";
  }
  EXPECT_EQ(found, 3u);
  EXPECT_EQ(stash.blocks(), 10u);
  stash.release(c, idle);
  idle = stash.take_idle(false);
  EXPECT_NE(idle, nullptr) << "nobody came since";
  EXPECT_EQ(stash.blocks(), 0u);
  stash.release(c, idle);
}

TEST(TransferStash, WithoutMemoryForARecordNothingIsKept) {
  TransferStash stash;
  const unsigned c = class_for(64);
  // Continues until the arena has no piece left either.
  fake::fail(fake::Call::kReserveMetadata);
  fake::fail(fake::Call::kCommitMetadata);
  std::vector<void*> pieces;
  while (void* piece = metadata.allocate(2048)) pieces.push_back(piece);
  EXPECT_FALSE(stash.put(c, pointers(1, 10).data(), 10));
  EXPECT_EQ(stash.blocks(), 0u);
  fake::clear_failures();
  for (void* piece : pieces) metadata.free(piece, 2048);
  EXPECT_TRUE(stash.put(c, pointers(1, 10).data(), 10));
  stash.release(c, stash.take_idle(true));
}

TEST(TransferStash, NothingIsLostOrDoubledAmongThreads) {
  constexpr unsigned kGivers = 2, kTakers = 2, kBatches = 2000, kSlots = 50;
  TransferStash stash;
  const unsigned c = class_for(64);
  std::vector<std::atomic<unsigned>> seen(kGivers * kBatches * kSlots + 1);
  std::atomic<size_t> total{0};
  std::vector<std::thread> threads;
  for (unsigned g = 0; g < kGivers; ++g) {
    threads.emplace_back([&, g] {
      for (unsigned i = 0; i < kBatches; ++i) {
        const std::vector<void*> batch = pointers((g * kBatches + i) * kSlots + 1, kSlots);
        while (!stash.put(c, batch.data(), kSlots)) std::this_thread::yield();
      }
    });
  }
  for (unsigned t = 0; t < kTakers; ++t) {
    threads.emplace_back([&, t] {
      void* out[kSlots];
      while (total.load() < seen.size() - 1) {
        const unsigned got = stash.take(out, t == 0 ? kSlots : 7);
        for (unsigned i = 0; i < got; ++i) ++seen[reinterpret_cast<uintptr_t>(out[i])];
        total += got;
        if (got == 0) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 1; i < seen.size(); ++i) ASSERT_EQ(seen[i].load(), 1u);
  EXPECT_EQ(stash.blocks(), 0u);
  stash.release(c, nullptr);
}

/// A heap with two callers that take and give. Addresses of their own stand for threads.
class Transfer : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }

  std::vector<void*> take(unsigned c, unsigned wanted, const void* who) {
    std::vector<void*> out(wanted);
    out.resize(heap->take({c, out.data(), wanted, who}));
    return out;
  }
  void transfer(unsigned c, const std::vector<void*>& blocks, const void* who) {
    heap->transfer(c, blocks.data(), static_cast<unsigned>(blocks.size()), who);
  }
  [[nodiscard]] size_t out(unsigned c) {
    const BinStats s = heap->stats(c);
    return s.slots - s.free_slots;
  }
  void expect_empty() {
    heap->compact();
    EXPECT_EQ(pages->stats().used.count, 0u);
    EXPECT_EQ(heap->stashed_bytes(), 0u) << "a count was not given back";
    EXPECT_TRUE(heap->is_valid());
  }

  std::unique_ptr<PageHeap> pages = std::make_unique<PageHeap>();
  std::unique_ptr<SmallHeap> heap = std::make_unique<SmallHeap>(*pages);
  const unsigned c = class_for(64);
  int a = 0, b = 0;
};

TEST_F(Transfer, WhatOneThreadTakesAndAnotherGivesComesBackWithoutASpan) {
  const std::vector<void*> blocks = take(c, 100, &a);
  const uint64_t given = heap->stats(c).given, taken = heap->stats(c).taken;
  transfer(c, blocks, &b);
  EXPECT_EQ(heap->stats(c).queued, 100u) << "counted as cached";
  EXPECT_EQ(out(c), 100u);
  EXPECT_TRUE(heap->is_valid());
  std::vector<void*> again = take(c, 100, &a);
  EXPECT_EQ(again, blocks);
  EXPECT_EQ(heap->stats(c).queued, 0u);
  EXPECT_EQ(heap->stats(c).given, given) << "no span was touched";
  EXPECT_EQ(heap->stats(c).taken, taken);
  heap->give(c, again.data(), 100, SmallHeap::Wait::kYes);
  expect_empty();
}

TEST_F(Transfer, ARefillGetsABatchThatItsMagazineHolds) {
  const std::vector<void*> blocks = take(c, 100, &a);
  transfer(c, blocks, &b);
  std::vector<void*> again(100);
  ASSERT_EQ(heap->take({c, again.data(), 50, &a, 50, 100}), 100u);
  EXPECT_EQ(again, blocks);
  transfer(c, blocks, &b);
  ASSERT_EQ(heap->take({c, again.data(), 50, &a, 50, 99}), 50u);
  heap->give(c, again.data(), 50, SmallHeap::Wait::kYes);
  expect_empty();
}

TEST_F(Transfer, WhoTakesAndGivesAloneHoldsNothing) {
  const std::vector<void*> blocks = take(c, 100, &a);
  transfer(c, blocks, &a);
  EXPECT_EQ(heap->stats(c).queued, 0u);
  EXPECT_EQ(out(c), 0u);
  expect_empty();
}

TEST_F(Transfer, AClassThatNobodyTookHoldsNothing) {
  std::vector<void*> blocks(100);
  blocks.resize(heap->take({c, blocks.data(), 100}));  // like a thread without a cache
  transfer(c, blocks, &b);
  EXPECT_EQ(heap->stats(c).queued, 0u);
  expect_empty();
}

TEST_F(Transfer, AllStashesTogetherAreBounded) {
  size_t held = 0;
  std::vector<std::pair<unsigned, std::vector<void*>>> live;
  for (unsigned k = 1; k < kSizeClassCount; ++k) {
    for (int i = 0; i < 20; ++i) {
      const unsigned slots = TransferStash::batch_slots(k) / 2;
      const std::vector<void*> blocks = take(k, slots, &a);
      heap->transfer(k, blocks.data(), static_cast<unsigned>(blocks.size()), &b);
    }
    held += heap->stats(k).queued * kSizeClasses[k].bytes;
  }
  EXPECT_LE(held, size_t{1} << 20);
  EXPECT_GT(held, size_t{64} << 10);
  expect_empty();
}

TEST_F(Transfer, WhatWentHomeOrWasRefusedLeavesRoomForMore) {
  const unsigned large = class_for(1024);  // its stash holds only three batches
  const unsigned slots = TransferStash::batch_slots(large);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::vector<void*>> batches;
    for (int i = 0; i < 8; ++i) {
      std::vector<void*> batch;
      while (batch.size() < slots) {  // a take may bring fewer than asked for
        for (void* block : take(large, slots - static_cast<unsigned>(batch.size()), &a))
          batch.push_back(block);
      }
      batches.push_back(batch);
    }
    for (const std::vector<void*>& batch : batches) transfer(large, batch, &b);
    ASSERT_GT(heap->stats(large).queued, 0u) << round;
    heap->compact();
  }
  expect_empty();
}

TEST_F(Transfer, WhatNobodyWantsGoesHomeInTime) {
  const std::vector<void*> blocks = take(c, 100, &a);
  transfer(c, blocks, &b);
  fake::advance_ms(1000);
  heap->tick();  // it came since the last look
  EXPECT_EQ(heap->stats(c).queued, 100u);
  heap->tick();
  EXPECT_EQ(heap->stats(c).queued, 100u) << "not twice at once";
  fake::advance_ms(1000);
  heap->tick();
  EXPECT_EQ(heap->stats(c).queued, 0u);
  EXPECT_EQ(out(c), 0u);
  expect_empty();
}

TEST_F(Transfer, CompactBringsEverythingHome) {
  transfer(c, take(c, 100, &a), &b);
  ASSERT_EQ(heap->stats(c).queued, 100u);
  expect_empty();
  EXPECT_EQ(heap->stats(c).queued, 0u);
}

using TransferDeathTest = Transfer;

TEST_F(TransferDeathTest, ADoubleFreeIsFoundWhenTheBatchGoesHome) {
  const std::vector<void*> blocks = take(c, 10, &a);
  transfer(c, blocks, &b);
  transfer(c, {blocks[3]}, &b);
  EXPECT_DEATH(heap->compact(), "double free");
}

TEST_F(TransferDeathTest, AWrongPointerIsFoundWhenTheBatchGoesHome) {
  std::vector<void*> blocks = take(c, 10, &a);
  blocks[5] = static_cast<char*>(blocks[5]) + 16;
  transfer(c, blocks, &b);
  EXPECT_DEATH(heap->compact(), "middle of a block");
}

TEST_F(Transfer, ChecksThatLookForEveryFreeBlockFindItInItsSpan) {
  heap->keep_spans_pure();
  transfer(c, take(c, 100, &a), &b);
  EXPECT_EQ(heap->stats(c).queued, 0u);
  EXPECT_EQ(out(c), 0u);
  expect_empty();
}

TEST_F(Transfer, AForkedChildCountsWhatIsThere) {
  transfer(c, take(c, 100, &a), &b);
  heap->lock_all();
  heap->reset_locks_after_fork();
  EXPECT_EQ(heap->stats(c).queued, 100u);
  EXPECT_TRUE(heap->is_valid());
  expect_empty();
  // Fewer blocks than came home before: a count below zero would refuse them.
  transfer(c, take(c, 50, &a), &b);
  EXPECT_EQ(heap->stats(c).queued, 50u) << "there is room as before";
  expect_empty();
}

TEST_F(Transfer, ThreadsHandOverWhileOthersLookAndCompact) {
  constexpr unsigned kRounds = 400;
  std::atomic<void*> table[256] = {};
  std::atomic<bool> stop{false};
  std::thread giver([&] {
    std::vector<void*> held;
    while (!stop) {
      for (auto& place : table) {
        if (void* block = place.exchange(nullptr)) held.push_back(block);
        if (held.size() < 40) continue;
        transfer(c, held, &b);
        held.clear();
      }
    }
    if (!held.empty()) transfer(c, held, &b);
  });
  std::thread looker([&] {
    while (!stop) {
      heap->tick();
      heap->compact();
      EXPECT_TRUE(heap->is_valid());
      std::this_thread::yield();
    }
  });
  for (unsigned round = 0; round < kRounds; ++round) {
    for (void* block : take(c, 60, &a)) {
      for (unsigned i = 0; block != nullptr; ++i) {
        void* none = nullptr;
        if (table[i % 256].compare_exchange_strong(none, block)) block = nullptr;
        if (i % 256 == 255) std::this_thread::yield();
      }
    }
  }
  stop = true;
  giver.join();
  looker.join();
  for (auto& place : table) {
    void* block = place.load();
    if (block != nullptr) heap->give(c, &block, 1, SmallHeap::Wait::kYes);
  }
  expect_empty();
}

}  // namespace
}  // namespace loam
