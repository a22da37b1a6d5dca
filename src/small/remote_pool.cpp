#include "small/remote_pool.h"

#include "map/metadata.h"

namespace loam {

constinit RemotePool remote_pool;

RemoteBatch* RemotePool::take() {
  {
    Lock lock(mutex_);
    RemoteBatch* batch = free_;
    if (batch != nullptr) {
      free_ = batch->next;
      batch->next = nullptr;
      batch->count = 0;
      return batch;
    }
  }
  return static_cast<RemoteBatch*>(metadata.allocate(sizeof(RemoteBatch)));
}

void RemotePool::give(RemoteBatch* list) {
  if (list == nullptr) return;
  RemoteBatch* last = list;
  while (last->next != nullptr) last = last->next;
  Lock lock(mutex_);
  last->next = free_;
  free_ = list;
}

}  // namespace loam
