// Private heaps on the pretended system: refused memory, a refused barrier, accounts that add up.
// Blocks are at pretended addresses, so no test writes to one.
#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "heap/heap.h"
#include "map/metadata.h"
#include "pages/huge_map.h"
#include "private/heap_registry.h"

namespace loam {
namespace {

namespace fake = os::fake;
using fake::Call;

class PretendPrivateHeap : public testing::Test {
 public:
  static PrivateHeap* make(unsigned flags = 0, size_t maximum = 0, size_t initial = 0) {
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.flags = flags;
    options.maximum = maximum;
    options.initial = initial;
    return heap_registry.create(options, &why_);
  }
  static void* allocate(PrivateHeap* heap, size_t bytes, size_t alignment = LOAM_ALIGNMENT) {
    void* block = alignment <= LOAM_ALIGNMENT ? PrivateHeap::pop(heap, bytes) : nullptr;
    return block != nullptr ? block : heap->allocate(bytes, alignment, false, &why_);
  }
  static loam_status free(PrivateHeap* heap, void* block) {
    const Span* span = private_span_at(block);
    return span != nullptr && PrivateHeap::push(heap, span, block) ? LOAM_OK : heap->free(block);
  }
  static loam_heap_summary summary(PrivateHeap* heap) {
    loam_heap_summary s{};
    heap->summary(&s);
    return s;
  }
  /// The slots that left the bins or came back to them since the heap began.
  static uint64_t moved_slots(PrivateHeap* heap) {
    HeapReading r{};
    uint64_t moved = 0;
    heap->read(&r, [&](unsigned, const HeapReading::Class& k) { moved += k.taken + k.given; });
    return moved;
  }

  // Earlier tests left free memory, and a heap that keeps freed mappings until one was kept in
  // vain.
  void SetUp() override {
    heap::free(heap::allocate(2 * kMaxRun.bytes()));
    fake::advance_ms(2 * IdleMappings::kKeptMs);
    page_heap.tick();
    static_cast<void>(page_heap.release_idle_extents());
  }
  void TearDown() override {
    fake::clear_failures();
    EXPECT_EQ(heap_registry.count(), 0u);
    EXPECT_TRUE(heap::is_valid());
    heap::compact();
    EXPECT_EQ(page_heap.stats().used.count, 0u);
    EXPECT_EQ(huge_map.totals().blocks, 0u);
  }
  static inline loam_status why_ = LOAM_OK;
};

TEST_F(PretendPrivateHeap, AnInitialSizeThatNoAddressSpaceHoldsIsRefusedAtOnce) {
  const uint64_t calls = fake::calls(Call::kReserve);
  for (const size_t initial : {size_t{1} << 50, SIZE_MAX / 2}) {
    EXPECT_EQ(make(0, 0, initial), nullptr);
    EXPECT_EQ(why_, LOAM_OUT_OF_MEMORY);
  }
  EXPECT_EQ(fake::calls(Call::kReserve), calls);
}

// A thread that is inside a heap's fast path, as if the system had taken its processor away.
class ThreadInAHeap {
 public:
  ThreadInAHeap(PrivateHeap* inside, PrivateHeap* used_before)
      : thread_([=, this] {
          for (PrivateHeap* heap : {used_before, inside}) {
            // Enough calls for a cache.
            for (int i = 0; i < 1000; ++i) {
              EXPECT_EQ(PretendPrivateHeap::free(heap, PretendPrivateHeap::allocate(heap, 64)),
                        LOAM_OK);
            }
          }
          LOAM_CHECK(thread_heaps() != nullptr, "no caches of private heaps");
          thread_heaps()->note_inside(inside);
          thread_heaps()->enter();
          stands_.store(true);
          while (!goes_on_.load()) std::this_thread::yield();
          thread_heaps()->leave();
        }) {
    while (!stands_.load()) std::this_thread::yield();
  }
  ~ThreadInAHeap() {
    goes_on_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> stands_{false}, goes_on_{false};
  std::thread thread_;
};

TEST_F(PretendPrivateHeap, AHeapEndsWhileAThreadThatUsedItStandsInAnother) {
  PrivateHeap* const ended = make();
  PrivateHeap* const other = make();
  {
    ThreadInAHeap thread(other, ended);
    EXPECT_EQ(heap_registry.destroy(ended), LOAM_OK);
  }
  EXPECT_EQ(heap_registry.destroy(other), LOAM_OK);
}

#if defined(LOAM_DEBUG)
TEST_F(PretendPrivateHeap, AHeapThatEndsWhileAThreadStandsInItSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        PrivateHeap* const ended = make();
        ThreadInAHeap thread(ended, ended);
        static_cast<void>(heap_registry.destroy(ended));
      },
      "destroyed while a thread uses it");
}
#endif

TEST_F(PretendPrivateHeap, DestroyGivesBackEverythingWithoutBeingAskedBlockByBlock) {
  const size_t before = metadata.used_bytes();
  for (const unsigned flags : {0u, unsigned(LOAM_HEAP_EAGER), unsigned(LOAM_HEAP_EXACT_SIZES),
                               unsigned(LOAM_HEAP_UNSYNCHRONIZED)}) {
    PrivateHeap* heap = make(flags, 0, 5 << 20);
    ASSERT_NE(heap, nullptr);
    for (size_t i = 0; i < 20'000; ++i) ASSERT_NE(allocate(heap, i % 3000), nullptr);
    for (size_t i = 0; i < 200; ++i) ASSERT_NE(allocate(heap, 40'000 + i * 100'000), nullptr);
    ASSERT_NE(allocate(heap, size_t{1} << 36), nullptr);
    ASSERT_TRUE(heap->is_valid());
    ASSERT_EQ(heap_registry.destroy(heap), LOAM_OK);
    EXPECT_EQ(page_heap.stats().used.count, 0u);
    EXPECT_EQ(huge_map.totals().blocks, 0u);
  }
  // The thread keeps its table of caches. Everything of a heap is released.
  EXPECT_LE(metadata.used_bytes(), before + (size_t{32} << 10));
}

TEST_F(PretendPrivateHeap, EveryRefusalIsAStatusAndLosesNothing) {
  // Without memory for its initial size there is no heap.
  fake::fail_any(1, fake::kForever);
  EXPECT_EQ(make(0, 0, 3 << 20), nullptr);
  EXPECT_EQ(why_, LOAM_OUT_OF_MEMORY);
  fake::clear_failures();
  // The n-th call that the system may refuse is refused, for every n in a short life.
  for (uint64_t nth = 1; nth < 40; ++nth) {
    fake::fail_any(nth, 3);
    PrivateHeap* heap = make(nth % 2 != 0 ? LOAM_HEAP_EAGER : 0, 0, nth % 3 == 0 ? 3 << 20 : 0);
    if (heap == nullptr) {
      EXPECT_EQ(why_, LOAM_OUT_OF_MEMORY);
      fake::clear_failures();
      continue;
    }
    std::vector<void*> blocks;
    for (size_t i = 0; i < 3000; ++i) {
      why_ = LOAM_OK;
      void* block = allocate(heap, i % 97 == 0 ? i * 30'000 : i % 2000);
      if (block != nullptr) {
        blocks.push_back(block);
      } else {
        EXPECT_EQ(why_, LOAM_OUT_OF_MEMORY);
      }
    }
    fake::clear_failures();
    EXPECT_GT(blocks.size(), 2900u);
    EXPECT_TRUE(heap->is_valid()) << nth;
    for (void* block : blocks) ASSERT_EQ(free(heap, block), LOAM_OK);
    size_t largest = 0;
    static_cast<void>(heap->compact(&largest));
    const loam_heap_summary s = summary(heap);
    EXPECT_EQ(s.blocks, 0u);
    EXPECT_EQ(s.spans, 0u);
    EXPECT_EQ(s.large_blocks, 0u);
    EXPECT_TRUE(heap->is_valid());
    EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
  }
}

TEST_F(PretendPrivateHeap, WithoutTheBarrierThereAreNoCachesAndEverythingWorks) {
  std::thread([] {
    fake::fail(Call::kBarrier);
    PrivateHeap* heap = make(LOAM_HEAP_EAGER);
    std::vector<void*> blocks;
    for (int i = 0; i < 1000; ++i) blocks.push_back(allocate(heap, 64));
    EXPECT_EQ(heap->lock(), LOAM_OK);
    EXPECT_EQ(heap->unlock(), LOAM_OK);
    for (void* block : blocks) EXPECT_EQ(free(heap, block), LOAM_OK);
    EXPECT_EQ(summary(heap).cached, 0u);
    EXPECT_TRUE(heap->is_valid());
    EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
  }).join();
}

TEST_F(PretendPrivateHeap, ABarrierThatIsRefusedLaterEndsTheCaches) {
  std::thread([] {
    PrivateHeap* heap = make(0);
    std::vector<void*> blocks;
    for (int i = 0; i < 1000; ++i) blocks.push_back(allocate(heap, 64));
    for (int i = 0; i < 500; ++i) {
      EXPECT_EQ(free(heap, blocks.back()), LOAM_OK);
      blocks.pop_back();
    }
    ASSERT_NE(summary(heap).cached, 0u);
    fake::fail(Call::kBarrier);
    // The pretended clock stands still, and that of a thread that waits goes on.
    std::atomic<bool> done{false};
    std::thread clock([&] {
      while (!done) fake::advance_ms(1);
    });
    EXPECT_EQ(heap->lock(), LOAM_OK);
    done = true;
    clock.join();
    EXPECT_EQ(heap->unlock(), LOAM_OK);
    EXPECT_EQ(summary(heap).cached, 0u);
    EXPECT_EQ(heap->lock(), LOAM_OK) << "without another wait";
    EXPECT_EQ(heap->unlock(), LOAM_OK);
    for (int i = 0; i < 500; ++i) blocks.push_back(allocate(heap, 64));
    for (void* block : blocks) EXPECT_EQ(free(heap, block), LOAM_OK);
    EXPECT_EQ(summary(heap).cached, 0u);
    EXPECT_TRUE(heap->is_valid());
    EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
  }).join();
}

TEST_F(PretendPrivateHeap, AMaximumHoldsWhateverIsAskedFor) {
  for (const size_t maximum : {size_t{1}, size_t{4096}, size_t{8192}, size_t{64} << 10,
                               size_t{1} << 20, size_t{50} << 20}) {
    for (const unsigned flags : {0u, unsigned(LOAM_HEAP_EAGER | LOAM_HEAP_EXACT_SIZES)}) {
      PrivateHeap* heap = make(flags, maximum);
      ASSERT_NE(heap, nullptr);
      std::vector<void*> blocks;
      size_t refused = 0;
      for (size_t i = 0; i < 5000; ++i) {
        void* block = allocate(heap, (i * 7919) % (i % 50 == 0 ? 400'000 : 3000));
        if (block != nullptr) {
          blocks.push_back(block);
        } else {
          ++refused;
          EXPECT_EQ(why_, LOAM_LIMIT_REACHED);
        }
        if (i % 3 == 0 && !blocks.empty()) {
          ASSERT_EQ(free(heap, blocks.back()), LOAM_OK);
          blocks.pop_back();
        }
      }
      const loam_heap_summary s = summary(heap);
      EXPECT_LE(s.peak_committed, round_up(maximum, kPageBytes));
      if (maximum < size_t{1} << 20) {
        EXPECT_GT(refused, 0u);
      }
      EXPECT_TRUE(heap->is_valid());
      EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
    }
  }
}

// A copy would end the test, because pretended addresses have no memory.
TEST_F(PretendPrivateHeap, ALongRunThatGrowsIsMovedAndNotCopied) {
  constexpr size_t kBytes = size_t{9} << 20, kMore = 5000, kMaximum = kBytes + (size_t{1} << 20);
  PrivateHeap* heap = make(0, kMaximum);
  void* const block = allocate(heap, kBytes);
  ASSERT_NE(block, nullptr);
  fake::touch(reinterpret_cast<uintptr_t>(block), kBytes);
  const size_t resident = fake::resident_bytes(), used = page_heap.stats().used.bytes();
  void* const moved = heap->reallocate(block, kBytes + kMore, LOAM_ALIGNMENT, false, &why_);
  ASSERT_NE(moved, nullptr);
  EXPECT_NE(moved, block);
  EXPECT_EQ(why_, LOAM_OK);
  EXPECT_EQ(fake::written_bytes(reinterpret_cast<uintptr_t>(moved), kBytes + kMore), kBytes);
  EXPECT_EQ(fake::resident_bytes(), resident);
  EXPECT_EQ(page_heap.stats().used.bytes(), used - kBytes);
  EXPECT_EQ(heap->free(block), LOAM_INVALID_BLOCK) << "nothing is there any more";
  EXPECT_EQ(heap->find(moved).bytes, kBytes + kMore);
  // The heap is charged for the new bytes, and only up to the maximum.
  EXPECT_EQ(heap->reallocate(moved, kMaximum, LOAM_ALIGNMENT, false, &why_), nullptr);
  EXPECT_EQ(why_, LOAM_LIMIT_REACHED);
  EXPECT_EQ(heap->free(moved), LOAM_OK);
  EXPECT_EQ(summary(heap).large_blocks, 0u);
  EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
}

TEST_F(PretendPrivateHeap, AHeapAtItsMaximumGrowsARunThatCannotMoveWhereItStands) {
  constexpr size_t kBytes = size_t{9} << 20;
  PrivateHeap* heap = make(0, 2 * kBytes);
  void* const block = allocate(heap, kBytes);
  ASSERT_NE(block, nullptr);
  fake::fail(Call::kMoveToBlock);
  EXPECT_EQ(heap->reallocate(block, kBytes + 5000, LOAM_ALIGNMENT, false, &why_), block);
  EXPECT_EQ(heap->free(block), LOAM_OK);
  EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
}

TEST_F(PretendPrivateHeap, AnotherThreadsCacheMakesRoomInAHeapAtItsLimit) {
  PrivateHeap* heap = make(LOAM_HEAP_EAGER, 64 << 10);
  std::atomic<int> stage{0};
  std::thread other([&] {
    void* block = allocate(heap, 40);
    EXPECT_EQ(free(heap, block), LOAM_OK);
    EXPECT_NE(summary(heap).cached, 0u);
    stage = 1;
    while (stage != 2) std::this_thread::yield();
  });
  while (stage != 1) std::this_thread::yield();
  size_t served = 0;
  while (allocate(heap, 40) != nullptr) ++served;
  EXPECT_EQ(why_, LOAM_LIMIT_REACHED);
  EXPECT_EQ(summary(heap).cached, 0u) << served;
  EXPECT_EQ(summary(heap).blocks, served);
  stage = 2;
  other.join();
  EXPECT_TRUE(heap->is_valid());
  EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
}

TEST_F(PretendPrivateHeap, AHandleIsRefusedLongAfterItsHeap) {
  PrivateHeap* first = make();
  EXPECT_TRUE(heap_registry.is_heap(first));
  EXPECT_FALSE(heap_registry.is_heap(reinterpret_cast<char*>(first) + 64));
  EXPECT_EQ(heap_registry.destroy(first), LOAM_OK);
  EXPECT_EQ(heap_registry.destroy(first), LOAM_INVALID_HEAP);
  for (int i = 0; i < 60; ++i) {
    PrivateHeap* next = make();
    EXPECT_NE(next, first);
    EXPECT_FALSE(heap_registry.is_heap(first));
    EXPECT_EQ(heap_registry.destroy(next), LOAM_OK);
  }
  EXPECT_FALSE(heap_registry.is_heap(nullptr));
  EXPECT_FALSE(heap_registry.is_heap(reinterpret_cast<void*>(~uintptr_t{511})));
}

TEST_F(PretendPrivateHeap, AStaleCacheOfTheSameRecordIsNeverUsed) {
  // The record is used again. The thread's place still names it, with the old generation.
  PrivateHeap* first = make(LOAM_HEAP_EAGER);
  void* old_block = allocate(first, 100);
  EXPECT_EQ(free(first, old_block), LOAM_OK);
  EXPECT_EQ(heap_registry.destroy(first), LOAM_OK);
  PrivateHeap* again = nullptr;
  for (int i = 0; i < 20000 && again != first; ++i) {
    again = make(LOAM_HEAP_EAGER);
    if (again != first) {
      EXPECT_EQ(heap_registry.destroy(again), LOAM_OK);
    }
  }
  ASSERT_EQ(again, first);
  EXPECT_EQ(PrivateHeap::pop(again, 100), nullptr);
  EXPECT_EQ(again->find(old_block).status, LOAM_INVALID_BLOCK);
  EXPECT_NE(allocate(again, 100), nullptr);
  EXPECT_TRUE(again->is_valid());
  EXPECT_EQ(heap_registry.destroy(again), LOAM_OK);
}

TEST_F(PretendPrivateHeap, TenThousandHeapsTakeLittle) {
  const size_t before = metadata.used_bytes();
  std::vector<PrivateHeap*> heaps;
  for (int i = 0; i < 10'000; ++i) {
    heaps.push_back(make());
    ASSERT_NE(heaps.back(), nullptr);
    for (size_t k = 0; k < 16; ++k)
      ASSERT_NE(allocate(heaps.back(), 16 + k * 14), nullptr);  // 2 KiB
  }
  EXPECT_LE(page_heap.stats().used.count, 10'000u);  // a page each
  EXPECT_LE(metadata.used_bytes() - before, 10'000u * 4096);
  for (PrivateHeap* heap : heaps) ASSERT_EQ(heap_registry.destroy(heap), LOAM_OK);
}

// A batch is allocated, then freed in the same order, over and over.
class Batch {
 public:
  Batch(PrivateHeap* heap, size_t bytes, size_t count)
      : heap_(heap), bytes_(bytes), blocks_(count) {}
  void once() {
    for (void*& block : blocks_) block = PretendPrivateHeap::allocate(heap_, bytes_);
    for (void* block : blocks_) ASSERT_EQ(PretendPrivateHeap::free(heap_, block), LOAM_OK);
  }

 private:
  PrivateHeap* heap_;
  size_t bytes_;
  std::vector<void*> blocks_;
};

TEST_F(PretendPrivateHeap, ABatchThatGoesRoundStaysInTheThreadsCache) {
  // The bounds of malloc()'s magazines (decisions 17 and 55): 2,048 slots within 512 KiB.
  PrivateHeap* heap = make(LOAM_HEAP_EAGER);
  for (const auto& [bytes, count] : {std::pair<size_t, size_t>{64, 1000}, {16, 2000}, {512, 900}}) {
    Batch batch(heap, bytes, count);
    for (int round = 0; round < 8; ++round) batch.once();
    const uint64_t before = moved_slots(heap);
    for (int round = 0; round < 4; ++round) batch.once();
    EXPECT_EQ(moved_slots(heap), before) << bytes;
  }
  EXPECT_TRUE(heap->is_valid());
  EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
}

TEST_F(PretendPrivateHeap, WhoOnlyTakesOrOnlyGivesHasShorterMagazines) {
  PrivateHeap* heap = make(LOAM_HEAP_EAGER);
  std::vector<void*> blocks;
  for (int i = 0; i < 20'000; ++i) blocks.push_back(allocate(heap, 64));
  EXPECT_LE(summary(heap).cached, 512u * 64);
  std::thread([&] {
    for (void* block : blocks) ASSERT_EQ(free(heap, block), LOAM_OK);
    EXPECT_LE(summary(heap).cached, 2 * 512u * 64);  // this thread's and the other's
  }).join();
  EXPECT_TRUE(heap->is_valid());
  EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
}

TEST_F(PretendPrivateHeap, CachesShareWhatTheyHoldBeyondTheirDues) {
  // Twelve classes of 128 KiB each would be 1.5 MiB a heap, 30 MiB in all.
  constexpr size_t kDue = size_t{512} << 10;
  ASSERT_EQ(HeapCache::process_room.held(), 0u);
  std::vector<PrivateHeap*> heaps;
  size_t cached = 0, most = 0;
  for (int h = 0; h < 20; ++h) {
    PrivateHeap* heap = make(LOAM_HEAP_EAGER);
    heaps.push_back(heap);
    for (int round = 0; round < 10; ++round) {
      for (size_t bytes = 256; bytes < 256 + 12 * 16; bytes += 16) {
        Batch(heap, bytes, (size_t{128} << 10) / bytes).once();
      }
    }
    cached += summary(heap).cached;
    most = std::max(most, summary(heap).cached);
    EXPECT_LE(HeapCache::process_room.held(), HeapCache::kRoomBytes);
  }
  EXPECT_GT(most, kDue + kDue / 2);  // an early cache has more than its due
  EXPECT_GT(HeapCache::process_room.held(), HeapCache::kRoomBytes / 2);
  constexpr size_t kFirstSlots = 12 * 8 * 448;
  EXPECT_LE(cached, heaps.size() * (kDue + kFirstSlots) + HeapCache::kRoomBytes);
  // None of the cached memory is lost: not by a threshold that turns the front end off, by a
  // thread's end, or by the heap's own end.
  for (PrivateHeap* heap : heaps) {
    if (heap == heaps.front()) heap->set_small_threshold(0);
    EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
  }
  EXPECT_EQ(HeapCache::process_room.held(), 0u);
}

TEST_F(PretendPrivateHeap, BatchesComeHomeInAnyOrder) {
  for (const unsigned flags :
       {unsigned(LOAM_HEAP_EAGER), unsigned(LOAM_HEAP_EAGER | LOAM_HEAP_EXACT_SIZES)}) {
    PrivateHeap* heap = make(flags);
    for (const size_t bytes : {16, 48, 64, 112, 1000, 5000}) {
      const size_t count = 6000;
      for (const size_t stride :
           {size_t{1}, count - 1, size_t{7}, size_t{2399}, count / 2 + 1}) {  // none divides it
        std::vector<void*> blocks(count);
        for (void*& block : blocks) ASSERT_NE(block = allocate(heap, bytes), nullptr);
        ASSERT_TRUE(heap->is_valid());
        for (size_t i = 0, at = 0; i < count; ++i, at = (at + stride) % count) {
          ASSERT_EQ(free(heap, blocks[at]), LOAM_OK);
          ASSERT_EQ(free(heap, blocks[at]), LOAM_INVALID_BLOCK);
        }
        ASSERT_TRUE(heap->is_valid()) << bytes << " by " << stride;
        ASSERT_EQ(summary(heap).blocks, 0u);
      }
    }
    size_t largest = 0;
    static_cast<void>(heap->compact(&largest));
    EXPECT_EQ(summary(heap).spans, 0u);
    EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
  }
}

TEST_F(PretendPrivateHeap, TheFastPathsAnswerAnyHandleAndAnyPage) {
  PrivateHeap* heap = make(LOAM_HEAP_EAGER);
  void* own = allocate(heap, 64);
  ASSERT_EQ(free(heap, own), LOAM_OK);  // a cache, and an open door
  own = allocate(heap, 64);
  PrivateHeap* other = make(LOAM_HEAP_EAGER);
  void* foreign = allocate(other, 64);
  std::vector<void*> blocks = {own, foreign, heap::allocate(64), heap::allocate(100'000),
                               allocate(heap, 100'000)};
  // A page that was a private heap's span just before, and one of a parked run.
  PrivateHeap* gone = make(LOAM_HEAP_EAGER);
  void* stale = allocate(gone, 64);
  ASSERT_EQ(heap_registry.destroy(gone), LOAM_OK);
  blocks.push_back(stale);
  for (void* block : blocks) {
    const Span* span = span_named_at(block);
    ASSERT_NE(span, nullptr);
    // Handles that are no heap, a destroyed heap, a span's record, and values that its links may
    // have.
    for (const void* handle :
         {static_cast<const void*>(nullptr), static_cast<const void*>(gone),
          static_cast<const void*>(span), static_cast<const void*>(span->next)}) {
      const PrivateHeap* as_heap = static_cast<const PrivateHeap*>(handle);
      if (as_heap == heap || as_heap == other) continue;  // a private span's link names its heap
      EXPECT_FALSE(PrivateHeap::push(as_heap, span, block));
      EXPECT_FALSE(PrivateHeap::push_special(as_heap, span, block));
    }
    if (block != own) {
      EXPECT_FALSE(PrivateHeap::push(heap, span, block));
    }
  }
  EXPECT_EQ(span_named_at(own)->owner(), heap);
  EXPECT_EQ(span_named_at(foreign)->owner(), other);
  heap::free(blocks[2]);
  heap::free(blocks[3]);
  EXPECT_EQ(free(heap, own), LOAM_OK);
  EXPECT_EQ(free(heap, blocks[4]), LOAM_OK);
  EXPECT_EQ(free(other, foreign), LOAM_OK);
  EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
  EXPECT_EQ(heap_registry.destroy(other), LOAM_OK);
}

TEST_F(PretendPrivateHeap, AlignedBlocksAreAlignedInEveryKindOfMemory) {
  PrivateHeap* heap = make();
  for (size_t alignment = 16; alignment <= size_t{64} << 20; alignment *= 2) {
    for (const size_t bytes :
         {size_t{1}, size_t{100}, size_t{5000}, size_t{100'000}, size_t{40} << 20}) {
      void* block = allocate(heap, bytes, alignment);
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) %
                    (bytes <= kLargestSmall && alignment <= 16 ? 16 : alignment),
                0u);
      EXPECT_EQ(heap->find(block).status, LOAM_OK);
      if (alignment < 4096) {
        EXPECT_LT(summary(heap).allocated, bytes * 8 + 70'000 + alignment);
      }
      EXPECT_EQ(free(heap, block), LOAM_OK);
    }
  }
  EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
}

}  // namespace
}  // namespace loam
