// A thread's magazines on the pretended system. Each test body runs in a thread of its own, because
// only a thread has a cache of its own. The heap behind the caches is the process's, so counts are
// differences.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cache/cache_registry.h"
#include "cache/thread_cache.h"
#include "fake_system/fake.h"
#include "os/fatal.h"

namespace loam::test {

namespace fake = os::fake;

using magazine_policy::kClassBytes;
using magazine_policy::kFewSlots;
inline constexpr size_t kThreadBytes = CacheBudget::kThreadBytes;

inline void* allocate(unsigned c) {
  void* block = current_cache->pop(c);
  return block != nullptr ? block : current_cache->allocate_slow(c);
}

inline void release(void* block) {
  const unsigned c = static_cast<unsigned>(class_at(block));
  ASSERT_NE(c, 0u);
  if (!current_cache->push(c, block)) current_cache->free_slow(c, block);
}

inline size_t slots_out(unsigned c) {
  const BinStats s = default_small_heap.stats(c);
  return s.slots - s.free_slots;
}

inline constexpr unsigned kManyClasses = 40;  // with 64 KiB each in use
// First slots of blocks below 1 KiB are counted beside the rest.
inline constexpr size_t kFirstSlotsBytes = size_t{256} << 10;

// Allocates and frees `bytes` bytes of each of `classes` classes, from 528 bytes on, in turn.
// Returns the slow operations of the last of `rounds`.
inline uint64_t slow_in_turn(unsigned classes, int rounds, size_t bytes = kClassBytes / 2) {
  uint64_t slow = 0;
  for (int round = 0; round < rounds; ++round) {
    slow = current_cache->refills() + current_cache->flushes();
    for (unsigned c = class_for(528); c < class_for(528) + classes; ++c) {
      const unsigned batch = static_cast<unsigned>(bytes / kSizeClasses[c].bytes);
      std::vector<void*> blocks;
      for (unsigned i = 0; i < batch; ++i) blocks.push_back(allocate(c));
      for (void* block : blocks) release(block);
    }
    slow = current_cache->refills() + current_cache->flushes() - slow;
  }
  return slow;
}

class ThreadCacheTest : public testing::Test {
 protected:
  void TearDown() override {
    fake::clear_failures();
    set_corruption_policy(CorruptionPolicy::kAbort);
    default_small_heap.compact();
    page_heap.purge_all();
    page_heap.tick();  // the next test's threads hold what a heap of this size allows
    for (unsigned c = 1; c < kSizeClassCount; ++c) EXPECT_EQ(slots_out(c), 0u) << "class " << c;
    EXPECT_EQ(page_heap.stats().used.count, 0u) << "something did not come home";
    EXPECT_TRUE(page_heap.is_valid());
  }

  static void in_thread(const std::function<void()>& body) {
    std::thread([&] {
      body();
      EXPECT_TRUE(current_cache->is_valid());
    }).join();
  }
};

}  // namespace loam::test
