// The containers that `queue` compares, behind one interface:
//
//   bool kConcurrent                   may several threads call it at once without a lock?
//   void push(Functor&&)
//   bool pop(Functor&)                 false if it is empty
//
// A new container is a class here and a line in queue.cpp's table.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <queue>
#include <utility>

// A concurrent queue from a well-kept library (Debian package libconcurrentqueue-dev; header only).
#if __has_include(<concurrentqueue/concurrentqueue.h>)
#include <concurrentqueue/concurrentqueue.h>
#define WORKLOAD_HAS_CONCURRENT_QUEUE 1
#elif __has_include(<concurrentqueue/moodycamel/concurrentqueue.h>)
#include <concurrentqueue/moodycamel/concurrentqueue.h>
#define WORKLOAD_HAS_CONCURRENT_QUEUE 1
#else
#define WORKLOAD_HAS_CONCURRENT_QUEUE 0
#endif

namespace functors {

using Functor = std::function<uint64_t()>;

template <typename Underlying>
class StdQueue {
 public:
  static constexpr bool kConcurrent = false;
  void push(Functor&& f) { queue_.push(std::move(f)); }
  bool pop(Functor& f) {
    if (queue_.empty()) return false;
    f = std::move(queue_.front());
    queue_.pop();
    return true;
  }

 private:
  std::queue<Functor, Underlying> queue_;
};
using QueueOverDeque = StdQueue<std::deque<Functor>>;
using QueueOverList = StdQueue<std::list<Functor>>;

class List {
 public:
  static constexpr bool kConcurrent = false;
  void push(Functor&& f) { list_.emplace_back(std::move(f)); }
  bool pop(Functor& f) {
    if (list_.empty()) return false;
    f = std::move(list_.front());
    list_.erase(list_.begin());
    return true;
  }

 private:
  std::list<Functor> list_;
};

class Map {  // keyed by sequence
 public:
  static constexpr bool kConcurrent = false;
  void push(Functor&& f) { map_.emplace_hint(map_.end(), next_++, std::move(f)); }
  bool pop(Functor& f) {
    if (map_.empty()) return false;
    f = std::move(map_.begin()->second);
    map_.erase(map_.begin());
    return true;
  }

 private:
  std::map<uint64_t, Functor> map_;
  uint64_t next_ = 0;
};

#if WORKLOAD_HAS_CONCURRENT_QUEUE
class Concurrent {
 public:
  static constexpr bool kConcurrent = true;
  void push(Functor&& f) { queue_.enqueue(std::move(f)); }
  bool pop(Functor& f) { return queue_.try_dequeue(f); }

 private:
  moodycamel::ConcurrentQueue<Functor> queue_;
};
#endif

// Several threads on a container that was not made for it.
template <typename Container>
class Shared {
 public:
  void push(Functor&& f) {
    if constexpr (Container::kConcurrent) return container_.push(std::move(f));
    const std::lock_guard lock(mutex_);
    container_.push(std::move(f));
  }
  bool pop(Functor& f) {
    if constexpr (Container::kConcurrent) return container_.pop(f);
    const std::lock_guard lock(mutex_);
    return container_.pop(f);
  }

 private:
  Container container_;
  std::mutex mutex_;
};

}  // namespace functors
