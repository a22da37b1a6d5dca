// State of a thread for concurrent_functor_queue: a number, and the lane where it last found work.
#pragma once

#include <atomic>

namespace loam::detail {

/// The lane that a thread pushes to, and the lane where it looks first for a functor to run. A
/// hint: any value is correct.
struct queue_thread {
  unsigned number = 0;  // counts from 1; 0: not numbered yet
  unsigned lane = 0;    // where the last functor was found
  unsigned taken = 0;   // in a row from that lane
};
inline std::atomic<unsigned> queue_threads{0};
inline thread_local constinit queue_thread this_queue_thread{};

inline queue_thread& current_queue_thread() noexcept {
  queue_thread& t = this_queue_thread;
  if (t.number == 0) [[unlikely]] {
    t.number = queue_threads.fetch_add(1, std::memory_order_relaxed) + 1;
    t.lane = t.number - 1;
  }
  return t;
}

}  // namespace loam::detail
