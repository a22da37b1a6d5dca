// The containers that `queue` compares, behind one interface:
//
//   bool kConcurrent                   may several threads call it at once without a lock?
//   void push(F&&)                     a functor of any type; most hold it as a std::function
//   bool pop(Functor&)                 false if it is empty
//   bool run_one(uint64_t& sum)        instead of pop: calls it in its place, adds its result
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

#include "loam/concurrent_functor_queue.hpp"
#include "loam/functor_queue.hpp"

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

// Loam's own queue has no std::function. The functor itself is written into a block.
template <typename Queue, bool Concurrent>
class InPlace {
 public:
  static constexpr bool kConcurrent = Concurrent;
  template <typename F>
  void push(F&& f) {
    queue_.push([f = std::forward<F>(f)](uint64_t& sum) { sum += f(); });
  }
  bool run_one(uint64_t& sum) { return queue_.run_one(sum); }

 private:
  Queue queue_;
};
using Functors = InPlace<loam::functor_queue<void(uint64_t&)>, false>;
using ConcurrentFunctors = InPlace<loam::concurrent_functor_queue<void(uint64_t&)>, true>;

// Several threads on a container that was not made for it.
template <typename Container>
class Shared {
 public:
  template <typename F>
  void push(F&& f) {
    if constexpr (Container::kConcurrent) return container_.push(std::forward<F>(f));
    const std::lock_guard lock(mutex_);
    container_.push(std::forward<F>(f));
  }
  bool run_one(uint64_t& sum) requires requires(Container& c) { c.run_one(sum); }
  {
    if constexpr (Container::kConcurrent) return container_.run_one(sum);
    const std::lock_guard lock(mutex_);
    return container_.run_one(sum);
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
