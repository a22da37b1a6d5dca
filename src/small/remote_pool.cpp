#include "small/remote_pool.h"

#include "map/metadata.h"

namespace loam {

namespace {
constinit std::atomic<RemoteBatch*> pool{nullptr};
}

RemoteBatch* take_batch() {
  // acquire pairs with the release in return_batches()
  RemoteBatch* taken = pool.exchange(nullptr, std::memory_order_acquire);
  if (taken == nullptr) return static_cast<RemoteBatch*>(metadata.allocate(sizeof(RemoteBatch)));
  return_batches(taken->next);
  taken->next = nullptr;
  taken->count = 0;
  return taken;
}

void return_batches(RemoteBatch* list) {
  if (list == nullptr) return;
  RemoteBatch* last = list;
  while (last->next != nullptr) last = last->next;
  RemoteBatch* head = pool.load(std::memory_order_relaxed);
  do {
    last->next = head;
  } while (!pool.compare_exchange_weak(head, list, std::memory_order_release, std::memory_order_relaxed));
}

}  // namespace loam
