// Blocks on their way back to their bin. When a flush finds a bin locked, it leaves its pointers
// here instead of waiting. It leaves them in batches, with one atomic operation each. The next
// thread with the bin's lock takes them all.
//
//   head_ -> batch -> batch -> ...      (a stack; pushed one by one, taken whole: no ABA)
//
// Push is lock-free from any thread. Batches are 128 bytes of metadata, and do not lie in the freed
// blocks.
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

struct RemoteBatch {
  static constexpr unsigned kPointers = 14;
  RemoteBatch* next;
  uint64_t count;
  void* pointers[kPointers];
};
static_assert(sizeof(RemoteBatch) == 128,
              "two cache lines: the pair that prefetchers fetch together");

class RemoteQueue {
 public:
  void push(RemoteBatch* batch) {
    queued_.fetch_add(static_cast<uint32_t>(batch->count), std::memory_order_relaxed);
    RemoteBatch* head = head_.load(std::memory_order_relaxed);
    do {
      batch->next = head;
      // release publishes the batch; pairs with the acquire in take_all()
    } while (!head_.compare_exchange_weak(head, batch, std::memory_order_release,
                                          std::memory_order_relaxed));
  }

  [[nodiscard]] RemoteBatch* take_all() {
    RemoteBatch* taken = head_.exchange(nullptr, std::memory_order_acquire);
    uint32_t count = 0;
    for (const RemoteBatch* b = taken; b != nullptr; b = b->next)
      count += static_cast<uint32_t>(b->count);
    queued_.fetch_sub(count, std::memory_order_relaxed);
    return taken;
  }

  [[nodiscard]] bool empty() const { return head_.load(std::memory_order_relaxed) == nullptr; }

  /// In the child of a fork(): a sender may have counted a batch that it never linked. `others`:
  /// see count_others()
  void recount_after_fork(uint32_t others = 0) {
    uint32_t count = others;
    for (const RemoteBatch* b = head_.load(std::memory_order_relaxed); b != nullptr; b = b->next) {
      count += static_cast<uint32_t>(b->count);
    }
    queued_.store(count, std::memory_order_relaxed);
  }

  /// Counts pointers that wait beside this queue (in the bin's TransferStash), so that readers need
  /// only the number `queued`.
  void count_others(uint32_t more) { queued_.fetch_add(more, std::memory_order_relaxed); }
  void discount_others(uint32_t fewer) { queued_.fetch_sub(fewer, std::memory_order_relaxed); }

  /// The pointers that wait; may lack those of a push in progress.
  [[nodiscard]] uint32_t queued() const { return queued_.load(std::memory_order_relaxed); }

 private:
  friend struct CounterFields;
  std::atomic<RemoteBatch*> head_{nullptr};
  std::atomic<uint32_t> queued_{0};
};

}  // namespace loam
