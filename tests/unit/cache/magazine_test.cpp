// The lengths of a thread's magazines, and how many blocks are taken and given at once.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "cache/thread_cache_fixture.h"
#include "fake_system/fake.h"  // which system the test is built with
#include "map/metadata.h"

namespace loam {
namespace {

using namespace test;  // contents of the fixture

TEST_F(ThreadCacheTest, ABusyClassMissesEverLessOften) {
  in_thread([] {
    std::vector<void*> blocks;
    const auto misses = [&](int n) {
      const uint64_t before = current_cache->refills();
      for (int i = 0; i < n; ++i) blocks.push_back(allocate(1));
      return current_cache->refills() - before;
    };
    const uint64_t early = misses(100);
    misses(4000);
    const uint64_t late = misses(1000);
    EXPECT_GE(early, 5u) << "it starts small";
    EXPECT_LE(late, 10u) << "and grows";
    for (void* block : blocks) release(block);
  });
}

TEST_F(ThreadCacheTest, AShortMagazineGrowsWhereItStands) {
  // A thread that lives for some hundred calls should not spend them on moving arrays of slots.
  constexpr unsigned kClass = 4;
  static constexpr size_t kBlocks = 20;  // more than any first slots hold
  in_thread([] {
    std::vector<void*> blocks{allocate(kClass)};
    const size_t used = metadata.used_bytes();
    while (blocks.size() < kBlocks) blocks.push_back(allocate(kClass));
    for (void* block : blocks) release(block);
    EXPECT_GE(current_cache->held_blocks(kClass), kBlocks);
    EXPECT_EQ(metadata.used_bytes(), used);
    for (void* block : blocks) EXPECT_TRUE(current_cache->holds(kClass, block));
  });
}

TEST_F(ThreadCacheTest, LargeBlocksComeByWholeMagazinesToWhoOnlyTakes) {
  constexpr unsigned kBlocks = 640;
  // Each size has a thread of its own: blocks of others that go back would be taken as well.
  for (const size_t bytes : {size_t{4} << 10, size_t{16} << 10, size_t{32} << 10}) {
    in_thread([bytes] {
      const unsigned c = class_for(bytes);
      const unsigned whole = std::max<unsigned>(kFewSlots, kClassBytes / bytes);
      std::vector<void*> blocks;
      const auto refills_for = [&](unsigned count) {
        const uint64_t before = current_cache->refills();
        for (unsigned i = 0; i < count; ++i) blocks.push_back(allocate(c));
        return current_cache->refills() - before;
      };
      refills_for(4 * whole);  // until the magazine has its final length
      EXPECT_LE(refills_for(kBlocks), kBlocks / whole + 1) << bytes;
      // A thread may give blocks in between: half of the magazine stays free for them.
      uint64_t refills = 0;
      for (unsigned round = 0; round < 10; ++round) {
        for (unsigned i = 0; i < whole + 1; ++i) {
          release(blocks.back());
          blocks.pop_back();
        }
        const uint64_t before = current_cache->refills();
        while (current_cache->refills() == before) blocks.push_back(allocate(c));
        EXPECT_LE(current_cache->held_blocks(c), whole / 2) << bytes;
        refills += current_cache->refills() - before;
      }
      EXPECT_EQ(refills, 10u);
      for (void* block : blocks) release(block);
    });
  }
}

TEST_F(ThreadCacheTest, AfterHundredRoundsNeighboursStillFollowEachOther) {
  // The thread's frees come in order, magazine by magazine, and begin at another place in each
  // round.
  in_thread([] {
    for (const size_t bytes :
         {size_t{4} << 10, size_t{8} << 10, size_t{16} << 10, size_t{32} << 10}) {
      const unsigned c = class_for(bytes);
      std::vector<void*> blocks(1000);
      size_t jumps = 0;  // to memory neither in the span nor beside it
      for (unsigned round = 0; round < 100; ++round) {
        for (void*& block : blocks) block = allocate(c);
        jumps = 0;
        const size_t near = 2 * bytes * kSizeClasses[c].slots;
        for (size_t i = 1; i < blocks.size(); ++i) {
          const uintptr_t here = reinterpret_cast<uintptr_t>(blocks[i]),
                          before = reinterpret_cast<uintptr_t>(blocks[i - 1]);
          jumps += (here > before ? here - before : before - here) > near;
        }
        for (void* block : blocks) release(block);
      }
      // Spans of the size before were joined 32 at a time, so they serve in pieces of a megabyte.
      EXPECT_LE(jumps, blocks.size() / 30) << bytes;
    }
  });
}

// Each size has a thread of its own, because together they would exceed the unearned room.
TEST_F(ThreadCacheTest, ABatchThatIsTakenAndGivenInTurnFitsItsMagazine) {
  for (const size_t bytes : {16, 64, 128, 256, 512, 1024, 2048, 8192, 32768}) {
    in_thread([bytes] {
      const unsigned c = class_for(bytes);
      const size_t blocks =
          std::min<size_t>(magazine_policy::kMaxCapacity, kThreadBytes / 2 / bytes) / 2;
      std::vector<void*> batch(blocks);
      const auto round = [&] {
        for (void*& block : batch) block = allocate(c);
        for (void* block : batch) release(block);
      };
      for (int i = 0; i < 6; ++i) round();
      const uint64_t refills = current_cache->refills(), flushes = current_cache->flushes();
      for (int i = 0; i < 4; ++i) round();
      EXPECT_EQ(current_cache->refills(), refills) << kSizeClasses[c].bytes;
      EXPECT_EQ(current_cache->flushes(), flushes) << kSizeClasses[c].bytes;
    });
  }
}

TEST_F(ThreadCacheTest, AThreadThatOnlyTakesOrOnlyGivesKeepsAShortMagazine) {
  for (const size_t bytes : {16, 64, 256, 1024}) {
    const size_t most = std::min<size_t>(512, (size_t{32} << 10) / bytes);
    const unsigned c = class_for(bytes);
    in_thread([c, most] {
      std::vector<void*> blocks;
      for (int i = 0; i < 20'000; ++i) {
        blocks.push_back(allocate(c));
        ASSERT_LE(current_cache->held_blocks(c), most);
      }
      std::thread([&] {
        for (void* block : blocks) {
          release(block);
          ASSERT_LE(current_cache->held_blocks(c), most);
        }
      }).join();
    });
  }
}

TEST_F(ThreadCacheTest, NoMagazineHoldsMoreThanItsThreadMay) {
  for (unsigned c = 1; c < kSizeClassCount; ++c) {
    in_thread([c] {
      const size_t bytes = kSizeClasses[c].bytes;
      std::vector<void*> blocks(2500);
      // Takes and gives in turn, so that magazines grow beyond what one direction alone gets.
      for (int round = 0; round < 3; ++round) {
        for (void*& block : blocks) block = allocate(c);
        const size_t most = CacheBudget::most(page_heap.hints().used_bytes(), 1);
        for (void* block : blocks) {
          release(block);
          ASSERT_LE(current_cache->held_blocks(c) * bytes, most + kFirstSlotsBytes) << bytes;
          ASSERT_LE(current_cache->held_blocks(c), magazine_policy::kMaxCapacity) << bytes;
        }
      }
    });
  }
}

TEST_F(ThreadCacheTest, AThreadHoldsABoundedAmountOverAllClasses) {
  in_thread([] {
    size_t initial = 0;
    for (unsigned c = 1; c < kSizeClassCount; ++c) {
      const size_t bytes = kSizeClasses[c].bytes;
      initial += std::max<size_t>(
                     std::min<size_t>(magazine_policy::kInitialSlots, kClassBytes / bytes), 2) *
                 bytes;
    }
    for (int round = 0; round < 6; ++round) {
      for (unsigned c = 1; c < kSizeClassCount; ++c) {
        std::vector<void*> blocks;
        for (int i = 0; i < 600; ++i) blocks.push_back(allocate(c));
        for (void* block : blocks) release(block);
        ASSERT_LE(current_cache->held_bytes(), kThreadBytes + initial);
      }
    }
  });
}

TEST_F(ThreadCacheTest, ManyClassesOfLargeBlocksInUseAreServedByMagazines) {
  in_thread([] {
    // A block of every class from 1 to 24 KiB stays. One after the other is replaced, as in a table
    // of buffers.
    std::vector<void*> blocks;
    for (unsigned c = class_for(1024); kSizeClasses[c].bytes <= 24576; ++c)
      blocks.push_back(allocate(c));
    const auto replace_all = [&] {
      for (void*& block : blocks) {
        const unsigned c = static_cast<unsigned>(class_at(block));
        release(block);
        block = allocate(c);
      }
    };
    for (int round = 0; round < 10; ++round) replace_all();
    uint64_t taken = 0;
    for (unsigned c = 1; c < kSizeClassCount; ++c) taken += default_small_heap.stats(c).taken;
    for (int round = 0; round < 20; ++round) replace_all();
    for (unsigned c = 1; c < kSizeClassCount; ++c) taken -= default_small_heap.stats(c).taken;
    EXPECT_EQ(taken, 0u) << "no call should have needed a lock";
    for (void* block : blocks) release(block);
  });
}

TEST_F(ThreadCacheTest, ThreadsShareWhatTheyHoldBeyondTheirDue) {
  // Each thread wants its 2 MiB. Beyond 512 KiB all threads together have 16 MiB (cache_budget.h:
  // kProcessBytes).
  constexpr unsigned kThreads = 32;
  page_heap.keep_falls();  // or a look at a fall shortens the magazines of some
  std::atomic<unsigned> filled{0};
  std::atomic<size_t> held{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (unsigned c = class_for(1024); c < kSizeClassCount; ++c) {
        std::vector<void*> blocks;
        for (int i = 0; i < 8; ++i) blocks.push_back(allocate(c));
        for (void* block : blocks) release(block);
      }
      held += current_cache->held_bytes();
      ++filled;
      while (filled.load() != kThreads) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(held.load(), kThreads * (size_t{512} << 10) + kProcessBytes);
  EXPECT_GT(held.load(), kProcessBytes);
  page_heap.keep_falls(false);
}

TEST_F(ThreadCacheTest, AFullMagazineGivesTheColdHalfAway) {
  in_thread([] {
    std::vector<void*> blocks;
    for (int i = 0; i < 5000; ++i) blocks.push_back(allocate(1));
    const uint64_t flushes = current_cache->flushes();
    for (void* block : blocks) release(block);
    EXPECT_GT(current_cache->flushes(), flushes);
    // It still holds the blocks that were freed last.
    const size_t held = current_cache->held_blocks(1);
    ASSERT_GT(held, 0u);
    for (size_t i = 0; i < held; ++i)
      ASSERT_EQ(current_cache->pop(1), blocks[blocks.size() - 1 - i]);
    for (size_t i = 0; i < held; ++i) release(blocks[blocks.size() - 1 - i]);
  });
}

TEST_F(ThreadCacheTest, AClassThatFellIdleIsEmptiedByTheTrafficOfOthers) {
  in_thread([] {
    std::vector<void*> blocks;
    for (int i = 0; i < 400; ++i) blocks.push_back(allocate(10));
    for (void* block : blocks) release(block);
    const size_t held = current_cache->held_blocks(10);
    ASSERT_GT(held, 20u);
    blocks.clear();
    for (int i = 0; i < 400'000 && current_cache->held_blocks(10) != 0; ++i) {
      blocks.push_back(allocate(2));
      if (blocks.size() == 3000) {
        for (void* block : blocks) release(block);
        blocks.clear();
      }
    }
    EXPECT_EQ(current_cache->held_blocks(10), 0u);
    EXPECT_EQ(default_small_heap.stats(10).spans, 0u);
    for (void* block : blocks) release(block);
  });
}

// Misses and overflows of `pairs` blocks, each freed before the next.
uint64_t slow_in_pairs(unsigned c, int pairs) {
  const uint64_t before = current_cache->refills() + current_cache->flushes();
  for (int i = 0; i < pairs; ++i) release(allocate(c));
  return current_cache->refills() + current_cache->flushes() - before;
}

// Fills magazines until the thread may hold no more; returns the classes.
std::vector<unsigned> use_up_the_room() {
  std::vector<unsigned> classes;
  for (unsigned c = class_for(512); classes.size() <= kThreadBytes / kClassBytes; ++c)
    classes.push_back(c);
  for (int round = 0; round < 4; ++round) {
    for (const unsigned c : classes) {
      std::vector<void*> blocks;
      for (int i = 0; i < 600; ++i) blocks.push_back(allocate(c));
      for (void* block : blocks) release(block);
    }
  }
  return classes;
}

TEST_F(ThreadCacheTest, AClassThatComesLateGetsItsPlaceFromTheLargestMagazine) {
  in_thread([] {
    use_up_the_room();
    const unsigned late = class_for(16384);
    EXPECT_LE(slow_in_pairs(late, 1000), 2u) << "its first slots must be had at once";
    EXPECT_LE(current_cache->held_bytes(), kThreadBytes + 16384 * 2);
  });
}

TEST_F(ThreadCacheTest, RoomOfClassesThatFellIdleGoesToThoseInUse) {
  in_thread([] {
    use_up_the_room();
    // Batches of another size, for enough collections that they fit its magazine in the end.
    const unsigned c = class_for(272);
    std::vector<void*> blocks;
    uint64_t slow = 1;
    for (int round = 0; round < 3000 && slow != 0; ++round) {
      slow = current_cache->refills() + current_cache->flushes();
      for (int i = 0; i < 100; ++i) blocks.push_back(allocate(c));
      for (void* block : blocks) release(block);
      blocks.clear();
      slow = current_cache->refills() + current_cache->flushes() - slow;
    }
    EXPECT_EQ(slow, 0u);
  });
}

// A heap of so many bytes, in blocks that no cache holds.
class LargeHeap {
 public:
  explicit LargeHeap(size_t bytes) {
    span_ = page_heap.allocate_large(Pages(bytes >> kPageShift), Pages(1), kNobodysBlock, 0).span;
  }
  ~LargeHeap() { shrink(); }
  void shrink() {
    if (span_ != nullptr) page_heap.free(span_);
    span_ = nullptr;
  }

 private:
  Span* span_ = nullptr;
};

// Some dozen slow operations of one small class a round.
void overflow(int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<void*> blocks;
    for (int i = 0; i < 6000; ++i) blocks.push_back(allocate(2));
    for (void* block : blocks) release(block);
  }
}

// Classes and bytes of each that are too much for all threads together.
constexpr unsigned kTooMany = kSizeClassCount - class_for(528);
constexpr size_t kTooMuch = 4 * kClassBytes;
static_assert(kTooMany > kManyClasses);
constexpr size_t kLargeRoom = kProcessBytes * 5 / 4;

TEST_F(ThreadCacheTest, AThreadMayHoldItsPartOfALargeHeapsRoom) {
  in_thread([] {
    LargeHeap heap(kProcessShare * kLargeRoom);
    EXPECT_LT(slow_in_turn(kManyClasses, 40), kManyClasses / 2) << "nearly all of them fit";
    const size_t threads = std::max<size_t>(cache_registry.threads_hint(), 1);
    EXPECT_GT(current_cache->held_bytes(), kThreadBytes);
    // More than its part. The thread stops there, and is not treated as one of several that want
    // the room.
    static_cast<void>(slow_in_turn(kTooMany, 40, kTooMuch));
    for (int round = 0; round < 40; ++round) {
      static_cast<void>(slow_in_turn(kTooMany, 1, kTooMuch));
      ASSERT_GT(current_cache->held_bytes(), 2 * kThreadBytes) << round;
      ASSERT_LE(current_cache->held_bytes(), kLargeRoom / threads + (size_t{512} << 10));
    }
    // The next collections find the heap small again, whether its classes rest or not.
    heap.shrink();
    for (int round = 0; round < 10; ++round) {
      static_cast<void>(slow_in_turn(kManyClasses, 10));
      overflow(200);
      static_cast<void>(slow_in_turn(kManyClasses, 10));
    }
    EXPECT_LE(current_cache->held_bytes(), kProcessBytes / threads + kFirstSlotsBytes);
  });
}

TEST_F(ThreadCacheTest, ACollectionTakesWhatIsUsedBeyondTheLimit) {
  page_heap.keep_falls();
  in_thread([] {
    // The room is 32 MiB, and the blocks that go round are more than it.
    LargeHeap heap(kProcessShare * 2 * kProcessBytes);
    page_heap.tick();
    const unsigned classes[] = {class_for(4096), class_for(8192), class_for(16384)};
    size_t counts[] = {1500, 1500, 1500};
    const auto use = [&] {
      std::vector<void*> blocks;
      for (size_t k = 0; k < std::size(classes); ++k) {
        for (size_t i = 0; i < counts[k]; ++i) blocks.push_back(allocate(classes[k]));
      }
      for (void* block : blocks) release(block);
      return blocks.size();
    };
    for (int round = 0; round < 12; ++round) use();
    const size_t threads = std::max<size_t>(cache_registry.threads_hint(), 1);
    const size_t most = 2 * kProcessBytes / threads + kFirstSlotsBytes;
    EXPECT_LE(current_cache->held_bytes(), most);
    EXPECT_GT(current_cache->held_bytes(), most / 2);
    // The next collections find the heap small. No class misses, and each uses all that it holds.
    heap.shrink();
    page_heap.tick();
    for (int round = 0; round < 6; ++round) {
      for (size_t k = 0; k < std::size(classes); ++k)
        counts[k] = current_cache->held_blocks(classes[k]);
      for (uint64_t i = use(); i < CacheBudget::kCollectFrees; ++i) release(allocate(8));
    }
    EXPECT_LE(current_cache->held_bytes(), kProcessBytes / threads + kFirstSlotsBytes);
  });
  page_heap.keep_falls(false);
}

TEST_F(ThreadCacheTest, ALongMagazineGivesBackWhileTheHeapGrows) {
  in_thread([] {
    const unsigned c = class_for(8192), other = class_for(4096);
    const unsigned usual = magazine_policy::usual_capacity(8192);
    LargeHeap room(size_t{512} << 10);
    // Half of what the thread may hold, so that its limit lets nothing go.
    std::vector<void*> blocks(kThreadBytes / 4 / 8192), others;
    for (int round = 0; round < 8; ++round) {
      for (void*& block : blocks) block = allocate(c);
      for (void* block : blocks) release(block);
    }
    const size_t held = current_cache->held_blocks(c);
    ASSERT_GE(held, 4 * usual);
    room.shrink();
    while (others.size() < 64) others.push_back(allocate(other));
    EXPECT_EQ(current_cache->held_blocks(c), held) << "these took pages that were free already";
    // Twice what is held, by so few misses that no collection finds the class idle.
    while (others.size() < 512) others.push_back(allocate(other));
    EXPECT_LE(current_cache->held_blocks(c), usual);
    EXPECT_GT(current_cache->held_blocks(c), 0u) << "what is usual stays";
    for (void* block : others) release(block);
  });
}

// One thread has most of what all threads may hold. Others start, and are refused. The first one
// notices that after a while, and then they get room.
TEST_F(ThreadCacheTest, WhoHoldsMuchMakesRoomForWhoStartsLater) {
  LargeHeap heap(size_t{128} << 20);
  constexpr unsigned kSome = 14;  // classes that fit into what each of two threads may hold
  enum class Turn { kFirst, kSecond, kNotice, kAgain, kOver };
  std::atomic<Turn> turn{Turn::kFirst};
  const auto wait_for = [&](Turn which) {
    while (turn.load() != which) std::this_thread::yield();
  };
  std::thread first([&] {
    static_cast<void>(slow_in_turn(kTooMany, 40, kTooMuch));
    EXPECT_GT(current_cache->held_bytes(), 3 * kThreadBytes);
    turn = Turn::kSecond;
    wait_for(Turn::kNotice);
    // Every class in use misses: none of them rests, and none has too much.
    for (int i = 0; i < 4; ++i) static_cast<void>(slow_in_turn(kTooMany, 1, kTooMuch * 9 / 8));
    EXPECT_LE(current_cache->held_bytes(), kProcessBytes / 2 + kFirstSlotsBytes);
    static_cast<void>(slow_in_turn(kTooMany, 1));
    EXPECT_LE(current_cache->held_bytes(), kProcessBytes / 2 + kFirstSlotsBytes);
    turn = Turn::kAgain;
    wait_for(Turn::kOver);
  });
  std::thread second([&] {
    wait_for(Turn::kSecond);
    EXPECT_NE(slow_in_turn(kSome, 40, kTooMuch), 0u) << "too little is left";
    const size_t refused = current_cache->held_bytes();
    turn = Turn::kNotice;
    wait_for(Turn::kAgain);
    static_cast<void>(slow_in_turn(kSome, 40, kTooMuch));
    EXPECT_GT(current_cache->held_bytes(), refused + kThreadBytes / 4);
    turn = Turn::kOver;
  });
  first.join();
  second.join();
}

// Before the next collection, which comes after 256 slow operations, the batches of the class fit
// its magazine. A class in use keeps its blocks.
TEST_F(ThreadCacheTest, AClassThatMissesTakesTheRoomOfOneThatRests) {
  in_thread([] {
    // The first class that the search meets among those that hold blocks.
    unsigned busy = 0;
    for (const unsigned c : use_up_the_room()) {
      if (busy == 0 && current_cache->held_blocks(c) > 50) busy = c;
    }
    ASSERT_NE(busy, 0u);
    release(allocate(busy));
    uint64_t most = 0;
    // Uses one class after the other, so that the time since the last collection varies.
    for (const size_t bytes : {272, 304, 336, 368, 400}) {
      const unsigned c = class_for(bytes);
      const unsigned batch = static_cast<unsigned>(kClassBytes / bytes / 2);
      std::vector<void*> blocks;
      uint64_t slow = 1, sum = 0;
      for (int round = 0; round < 1000 && slow != 0; ++round) {
        slow = current_cache->refills() + current_cache->flushes();
        for (unsigned i = 0; i < batch; ++i) blocks.push_back(allocate(c));
        for (void* block : blocks) release(block);
        blocks.clear();
        slow = current_cache->refills() + current_cache->flushes() - slow;
        sum += slow;
        release(allocate(busy));
        ASSERT_GT(current_cache->held_blocks(busy), 8u) << "more than the first slots";
      }
      EXPECT_EQ(slow, 0u) << bytes;
      most = std::max(most, sum);
    }
    EXPECT_LT(most, 100u);
  });
}

TEST_F(ThreadCacheTest, ACollectionLeavesAClassInUseTheBlockItNeeds) {
  in_thread([] {
    release(allocate(30));
    const uint64_t before = default_small_heap.stats(30).taken;
    for (int round = 0; round < 500; ++round) {
      overflow(1);  // some dozen collections in all
      release(allocate(30));
    }
    EXPECT_LE(default_small_heap.stats(30).taken - before, 8u) << "pairs need no second block";
  });
}

// Blocks that were all in use since the last collection are no surplus, though no call missed.
TEST_F(ThreadCacheTest, ACollectionLeavesAClassTheBlocksThatItUsed) {
  in_thread([] {
    const unsigned c = class_for(256);
    std::vector<void*> blocks(200);
    const auto take = [&](size_t count) {
      for (size_t i = 0; i < count; ++i) blocks[i] = allocate(c);
    };
    const auto give = [&](size_t count) {
      for (size_t i = 0; i < count; ++i) release(blocks[i]);
    };
    const auto collect = [] {
      for (uint64_t i = 0; i < CacheBudget::kCollectUnearnedFrees; ++i) release(allocate(8));
    };
    for (int round = 0; round < 20; ++round) {
      take(blocks.size());
      give(blocks.size());
    }
    blocks.resize(current_cache->held_blocks(c));
    const uint64_t before = default_small_heap.stats(c).taken;
    for (int round = 0; round < 20; ++round) {
      take(blocks.size());
      give(blocks.size());
      collect();
    }
    EXPECT_EQ(default_small_heap.stats(c).taken, before) << "collected while it held all";
    for (int round = 0; round < 20; ++round) {
      take(blocks.size());
      collect();
      give(blocks.size());
    }
    EXPECT_EQ(default_small_heap.stats(c).taken, before) << "collected while it held none";
    for (int round = 0; round < 20; ++round) {
      take(8);
      give(8);
      collect();
    }
    EXPECT_LE(current_cache->held_blocks(c), 32u) << "what it no longer uses goes home";
  });
}

TEST_F(ThreadCacheTest, AClassThatComesBackSoonFindsItsArrayAgain) {
  in_thread([] {
    const unsigned c = class_for(640), busy = 2;
    const auto batch = [&](unsigned size_class) {
      std::vector<void*> blocks;
      // More than a magazine may hold of the busy class. Of the other one so few that its array
      // grows once.
      for (int i = 0; i < (size_class == busy ? 6000 : 60); ++i)
        blocks.push_back(allocate(size_class));
      for (void* block : blocks) release(block);
    };
    for (int round = 0; round < 8; ++round) batch(busy);
    const size_t without = metadata.used_bytes();
    for (int round = 0; round < 8; ++round) batch(c);
    const size_t with = metadata.used_bytes();
    ASSERT_GE(with - without, 100 * sizeof(void*)) << "it grew";
    for (int turn = 0; turn < 10; ++turn) {
      for (int round = 0; round < 40; ++round) batch(busy);  // three or four collections
      EXPECT_EQ(current_cache->held_blocks(c), 0u) << "what it held went home";
      EXPECT_EQ(metadata.used_bytes(), with);
      EXPECT_TRUE(current_cache->is_valid());
      for (int round = 0; round < 8; ++round) batch(c);
      EXPECT_EQ(metadata.used_bytes(), with) << "and no array was moved";
    }
    for (int round = 0; round < 200; ++round) batch(busy);
    EXPECT_EQ(metadata.used_bytes(), without) << "who stays away gives it back";
  });
}

}  // namespace
}  // namespace loam
