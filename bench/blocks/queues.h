// The queues that `queues` compares, behind one interface:
//
//   bool push(F&& functor)             a functor of any type, callable with Sum&
//   bool run_one(Sum&)                 pops one and runs it; false if there was none
//
// Loam's queues take the functor itself; the other queues hold std::function. A queue that is not
// made for several threads gets a mutex for the shared tests, and none for one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <queue>
#include <utility>

#include "loam/concurrent_functor_queue.hpp"
#include "loam/functor_queue.hpp"

#if BENCH_HAS_TBB
#include <tbb/concurrent_queue.h>
#endif
#if __has_include(<concurrentqueue/concurrentqueue.h>)
#include <concurrentqueue/concurrentqueue.h>
#define BENCH_HAS_MOODYCAMEL 1
#else
#define BENCH_HAS_MOODYCAMEL 0
#endif

namespace blocks {

struct Sum {
  uint64_t value = 0;
};
using Function = std::function<void(Sum&)>;

struct NoMutex {
  void lock() {}
  void unlock() {}
};

template <typename Mutex>
class LoamQueue {
 public:
  template <typename F>
  void push(F&& f) {
    const std::lock_guard lock(mutex_);
    queue_.push(std::forward<F>(f));
  }
  // The functor runs under the mutex, which is the cost of a lock around this queue.
  bool run_one(Sum& sum) {
    const std::lock_guard lock(mutex_);
    return queue_.run_one(sum);
  }

 private:
  loam::functor_queue<void(Sum&)> queue_;
  [[no_unique_address]] Mutex mutex_;
};

class LoamConcurrentQueue {
 public:
  template <typename F>
  void push(F&& f) {
    queue_.push(std::forward<F>(f));
  }
  bool run_one(Sum& sum) { return queue_.run_one(sum); }

 private:
  loam::concurrent_functor_queue<void(Sum&)> queue_;
};

template <typename Underlying, typename Mutex>
class StdQueue {
 public:
  template <typename F>
  void push(F&& f) {
    Function function(std::forward<F>(f));  // allocates before the lock, as a careful program would
    const std::lock_guard lock(mutex_);
    queue_.push(std::move(function));
  }
  bool run_one(Sum& sum) {
    Function function;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) return false;
      function = std::move(queue_.front());
      queue_.pop();
    }
    function(sum);
    return true;
  }

 private:
  std::queue<Function, Underlying> queue_;
  [[no_unique_address]] Mutex mutex_;
};

#if BENCH_HAS_TBB
template <typename Queue>
class TbbQueue {
 public:
  template <typename F>
  void push(F&& f) {
    queue_.push(Function(std::forward<F>(f)));
  }
  bool run_one(Sum& sum) {
    Function function;
    if (!queue_.try_pop(function)) return false;
    function(sum);
    return true;
  }

 private:
  Queue queue_;
};
#endif

#if BENCH_HAS_MOODYCAMEL
class MoodycamelQueue {
 public:
  template <typename F>
  void push(F&& f) {
    queue_.enqueue(Function(std::forward<F>(f)));
  }
  bool run_one(Sum& sum) {
    Function function;
    if (!queue_.try_dequeue(function)) return false;
    function(sum);
    return true;
  }

 private:
  moodycamel::ConcurrentQueue<Function> queue_;
};
#endif

}  // namespace blocks
