// Locks: ideas 20 and 21.
#include <atomic>
#include <chrono>
#include <thread>

#include "interface.h"

namespace heaps {
namespace {

using namespace std::chrono_literals;

template <typename Interface>
class Lock : public ::testing::Test {};
TYPED_TEST_SUITE(Lock, Interfaces, InterfaceNames);

/// Whether `action`, run by another thread, waits for the lock that the caller holds.
template <typename Interface, typename Action>
void expect_waits_for_lock(typename Interface::Heap heap, const char* what, Action action) {
  std::atomic<int> step{0};
  std::thread other([&] {
    step = 1;
    action();
    step = 2;
  });
  while (step == 0) std::this_thread::yield();
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(step, 1) << what << " did not wait";
  EXPECT_TRUE(Interface::unlock(heap));
  other.join();
  EXPECT_EQ(step, 2);
}

// On native Windows, blocks of the low-fragmentation heap evade the lock, against the
// documentation. Here they do not, not even those in the other thread's own cache.
TYPED_TEST(Lock, Idea20HoldsUpLocksAllocationsAndFreesOfOthers) {
  const Scoped<TypeParam> heap;
  ASSERT_TRUE(TypeParam::set_mode(heap, 2));
  void* const small = TypeParam::alloc(heap, 100);
  void* const large = TypeParam::alloc(heap, 200 * 1024);
  ASSERT_TRUE(small != nullptr && large != nullptr);
  ASSERT_TRUE(TypeParam::lock(heap));
  expect_waits_for_lock<TypeParam>(heap, "lock", [&] {
    EXPECT_TRUE(TypeParam::lock(heap));
    EXPECT_TRUE(TypeParam::unlock(heap));
  });
  ASSERT_TRUE(TypeParam::lock(heap));
  expect_waits_for_lock<TypeParam>(heap, "alloc",
                                   [&] { EXPECT_NE(TypeParam::alloc(heap, 50), nullptr); });
  ASSERT_TRUE(TypeParam::lock(heap));
  expect_waits_for_lock<TypeParam>(heap, "alloc of a large block",
                                   [&] { EXPECT_NE(TypeParam::alloc(heap, 100 * 1024), nullptr); });
  ASSERT_TRUE(TypeParam::lock(heap));
  expect_waits_for_lock<TypeParam>(heap, "free",
                                   [&] { EXPECT_TRUE(TypeParam::free(heap, small)); });
  ASSERT_TRUE(TypeParam::lock(heap));
  expect_waits_for_lock<TypeParam>(heap, "free of a large block",
                                   [&] { EXPECT_TRUE(TypeParam::free(heap, large)); });
}

TYPED_TEST(Lock, Idea20HoldsUpAThreadWhoseCacheIsFull) {
  const Scoped<TypeParam> heap;
  ASSERT_TRUE(TypeParam::set_mode(heap, 2));
  std::atomic<int> step{0};
  std::thread other([&] {
    // With a warm cache these calls would need no lock.
    for (int round = 0; round < 10; ++round) {
      void* blocks[64];
      for (void*& block : blocks) block = TypeParam::alloc(heap, 64);
      for (void* const block : blocks) EXPECT_TRUE(TypeParam::free(heap, block));
    }
    step = 1;
    while (step == 1) std::this_thread::yield();
    void* const block = TypeParam::alloc(heap, 64);
    EXPECT_NE(block, nullptr);
    EXPECT_TRUE(TypeParam::free(heap, block));
    step = 3;
  });
  while (step == 0) std::this_thread::yield();
  ASSERT_TRUE(TypeParam::lock(heap));
  step = 2;
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(step, 2) << "the other thread allocated although the heap was locked";
  ASSERT_TRUE(TypeParam::unlock(heap));
  other.join();
}

TYPED_TEST(Lock, Idea20IsRecursiveAndItsHolderWorksOn) {
  const Scoped<TypeParam> heap;
  ASSERT_TRUE(TypeParam::lock(heap));
  ASSERT_TRUE(TypeParam::lock(heap));
  void* const block = TypeParam::alloc(heap, 100);
  ASSERT_NE(block, nullptr);
  EXPECT_TRUE(TypeParam::validate(heap, block));
  EXPECT_TRUE(TypeParam::free(heap, TypeParam::realloc(heap, block, 5000)));
  EXPECT_TRUE(TypeParam::unlock(heap));
  expect_waits_for_lock<TypeParam>(heap, "lock, once too often unlocked", [&] {
    EXPECT_TRUE(TypeParam::lock(heap));
    EXPECT_TRUE(TypeParam::unlock(heap));
  });
  EXPECT_FALSE(TypeParam::unlock(heap)) << "nobody holds it";
}

TYPED_TEST(Lock, Idea20AnotherThreadCannotUnlock) {
  const Scoped<TypeParam> heap;
  ASSERT_TRUE(TypeParam::lock(heap));
  std::thread([&] { EXPECT_FALSE(TypeParam::unlock(heap)); }).join();
  EXPECT_TRUE(TypeParam::unlock(heap));
}

// Other heaps and malloc continue meanwhile.
TYPED_TEST(Lock, Idea20HoldsUpNoOtherHeap) {
  const Scoped<TypeParam> heap;
  const Scoped<TypeParam> other;
  ASSERT_TRUE(TypeParam::lock(heap));
  std::thread([&] {
    void* const block = TypeParam::alloc(other, 100);
    EXPECT_NE(block, nullptr);
    EXPECT_TRUE(TypeParam::free(other, block));
    EXPECT_EQ(std::vector<int>(1000, 7).back(), 7);
  }).join();
  EXPECT_TRUE(TypeParam::unlock(heap));
}

// The lock of a heap without locks excludes no thread, so two threads never wait for each other.
TYPED_TEST(Lock, Idea21AnUnserializedHeapNeverWaits) {
  const Scoped<TypeParam> heap({.unsynchronized = true});
  ASSERT_TRUE(TypeParam::lock(heap));
  std::thread([&] {
    EXPECT_TRUE(TypeParam::lock(heap));
    EXPECT_TRUE(TypeParam::unlock(heap));
  }).join();
  EXPECT_TRUE(TypeParam::unlock(heap));
}

// When a thread ends, its cache returns to the heap, and empty spans are released. This must not
// happen while another thread walks the heap.
TYPED_TEST(Lock, AThreadThatEndsLeavesALockedHeapAsItIs) {
  const Scoped<TypeParam> heap;
  ASSERT_TRUE(TypeParam::set_mode(heap, 2));
  std::atomic<int> step{0};
  std::thread other([&] {
    std::vector<void*> blocks(2000);
    for (void*& block : blocks) block = TypeParam::alloc(heap, 1000);
    for (void* const block : blocks) EXPECT_TRUE(TypeParam::free(heap, block));
    step = 1;
    while (step == 1) std::this_thread::yield();
  });
  while (step == 0) std::this_thread::yield();
  ASSERT_TRUE(TypeParam::lock(heap));
  const std::vector<Entry> before = TypeParam::walk(heap);
  step = 2;
  other.join();
  EXPECT_EQ(TypeParam::walk(heap), before);
  EXPECT_TRUE(TypeParam::validate(heap, nullptr));
  ASSERT_TRUE(TypeParam::unlock(heap));
  EXPECT_LT(TypeParam::walk(heap).size(), before.size())
      << "the thread's cache did not go home with the unlock";
  EXPECT_TRUE(TypeParam::validate(heap, nullptr));
}

TEST(LockLoam, AWalkGoesOnWhereAThreadEnds) {
  const Scoped<LoamInterface> heap;
  ASSERT_EQ(loam_set_mode(heap, LOAM_MODE_LOW_FRAGMENTATION), LOAM_OK);
  constexpr int kStay = 20;  // more than the steps before the thread ends
  for (int i = 0; i < kStay; ++i) ASSERT_NE(loam_alloc(heap, 100'000), nullptr);
  std::atomic<int> step{0};
  std::thread other([&] {
    std::vector<void*> blocks(2000);
    for (void*& block : blocks) block = loam_alloc(heap, 1000);
    for (void* const block : blocks) EXPECT_EQ(loam_free(heap, block), LOAM_OK);
    step = 1;
    while (step == 1) std::this_thread::yield();
  });
  while (step == 0) std::this_thread::yield();
  ASSERT_EQ(loam_lock(heap), LOAM_OK);
  loam_walk_entry at{};
  at.size = sizeof at;
  for (int i = 0; i < 10; ++i) ASSERT_EQ(loam_walk_next(heap, &at), LOAM_OK);
  step = 2;
  other.join();
  loam_status status = LOAM_OK;
  while (status == LOAM_OK) status = loam_walk_next(heap, &at);
  EXPECT_EQ(status, LOAM_NO_MORE);
  loam_heap_summary summary{};
  summary.size = sizeof summary;
  EXPECT_EQ(loam_unlock(heap), LOAM_OK);
  EXPECT_EQ(loam_summary(heap, &summary), LOAM_OK);
  EXPECT_EQ(summary.cached, 0u);
  EXPECT_EQ(summary.blocks, size_t{kStay});
}

TEST(LockLoam, TryLockSaysBusy) {
  const Scoped<LoamInterface> heap;
  EXPECT_EQ(loam_try_lock(heap), LOAM_OK);
  std::thread([&] { EXPECT_EQ(loam_try_lock(heap), LOAM_BUSY); }).join();
  EXPECT_EQ(loam_unlock(heap), LOAM_OK);
  EXPECT_EQ(loam_unlock(heap), LOAM_NOT_OWNER);
}

}  // namespace
}  // namespace heaps
