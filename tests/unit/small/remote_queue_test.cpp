// Blocks on their way home, with real threads.
#include "small/remote_queue.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "small/remote_pool.h"

namespace loam {
namespace {

void* pointer(uintptr_t n) { return reinterpret_cast<void*>(n); }

TEST(RemoteQueue, BatchesComeOutWhole) {
  RemoteQueue queue;
  RemoteBatch batches[3] = {};
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.take_all(), nullptr);
  for (unsigned i = 0; i < 3; ++i) {
    batches[i].count = i + 1;
    queue.push(&batches[i]);
  }
  EXPECT_FALSE(queue.empty());
  EXPECT_EQ(queue.queued(), 6u);
  unsigned found = 0;
  for (RemoteBatch* b = queue.take_all(); b != nullptr; b = b->next) ++found;
  EXPECT_EQ(found, 3u);
  EXPECT_EQ(queue.queued(), 0u);
  EXPECT_TRUE(queue.empty());
}

TEST(RemoteQueue, AfterAForkTheCountIsThatOfTheBatchesThere) {
  RemoteQueue queue;
  RemoteBatch batch{};
  batch.count = 5;
  queue.push(&batch);
  queue.recount_after_fork();
  EXPECT_EQ(queue.queued(), 5u);
}

TEST(RemoteQueue, NothingIsLostOrDoubledAmongThreads) {
  constexpr unsigned kSenders = 3, kBatches = 3000;
  RemoteQueue queue;
  std::atomic<unsigned> sending{kSenders};
  std::vector<std::thread> senders;
  for (unsigned s = 0; s < kSenders; ++s) {
    senders.emplace_back([&, s] {
      uintptr_t n = s * kBatches * RemoteBatch::kPointers + 1;
      for (unsigned i = 0; i < kBatches; ++i) {
        RemoteBatch* batch = remote_pool.take();
        ASSERT_NE(batch, nullptr);
        ASSERT_EQ(batch->count, 0u);
        while (batch->count < RemoteBatch::kPointers)
          batch->pointers[batch->count++] = pointer(n++);
        queue.push(batch);
      }
      sending.fetch_sub(1);
    });
  }
  std::vector<bool> seen(kSenders * kBatches * RemoteBatch::kPointers + 1);
  size_t total = 0;
  for (bool last = false; !last;) {
    last = sending.load() == 0;
    RemoteBatch* taken = queue.take_all();
    for (RemoteBatch* b = taken; b != nullptr; b = b->next) {
      for (unsigned i = 0; i < b->count; ++i) {
        const auto n = reinterpret_cast<uintptr_t>(b->pointers[i]);
        ASSERT_FALSE(seen[n]);
        seen[n] = true;
        ++total;
      }
    }
    remote_pool.give(taken);
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(total, size_t{kSenders} * kBatches * RemoteBatch::kPointers);
  EXPECT_EQ(queue.queued(), 0u);
}

TEST(RemotePool, BatchesAreUsedAgain) {
  RemoteBatch* a = remote_pool.take();
  RemoteBatch* b = remote_pool.take();
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  a->count = 3;
  a->next = b;
  remote_pool.give(a);
  remote_pool.give(nullptr);
  RemoteBatch* c = remote_pool.take();
  RemoteBatch* d = remote_pool.take();
  EXPECT_TRUE((c == a && d == b) || (c == b && d == a));
  EXPECT_EQ(c->count, 0u);
  EXPECT_EQ(c->next, nullptr);
  remote_pool.give(c);
  remote_pool.give(d);
}

}  // namespace
}  // namespace loam
