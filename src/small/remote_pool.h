// Empty remote batches, kept for the next flush that needs one.
//
// Lock: own, a leaf. Thread-safe.
#pragma once

#include "os/mutex.h"
#include "small/remote_queue.h"

namespace loam {

class RemotePool {
 public:
  constexpr RemotePool() = default;

  /// A batch with count 0, or null when the system refuses memory.
  [[nodiscard]] RemoteBatch* take();

  /// Puts back a list of batches (linked by next; may be null).
  void give(RemoteBatch* list);

  [[nodiscard]] Mutex& mutex() { return mutex_; }

 private:
  friend struct CounterFields;
  Mutex mutex_;
  RemoteBatch* free_ = nullptr;
};

extern RemotePool remote_pool;

}  // namespace loam
