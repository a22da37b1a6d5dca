// Threads that take no memory from the heap by themselves: POSIX threads and a POSIX barrier.
// (std::thread and std::barrier keep their state on the heap under test.) The C library may still
// allocate a thread's TLS tables; threads start before the baseline.
#pragma once

#include <pthread.h>

#include <cstdint>

#include "system.h"

namespace lab {

inline constexpr unsigned kMostThreads = 256;

// All threads wait until `count` have arrived. They wait in the kernel, because experiments run
// with more threads than cores.
class Barrier {
 public:
  explicit Barrier(unsigned count) {
    if (pthread_barrier_init(&barrier_, nullptr, count) != 0) {
      fail(kExitFailed, "workload: pthread_barrier_init failed");
    }
  }
  void wait() { pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

// Starts `body(context)` on a new thread.
template <typename Context, void (*body)(Context&)>
pthread_t start_thread(Context& context) {
  pthread_t thread;
  const auto entry = [](void* p) -> void* {
    body(*static_cast<Context*>(p));
    return nullptr;
  };
  if (pthread_create(&thread, nullptr, entry, &context) != 0) {
    fail(kExitFailed, "workload: cannot start a thread (pthread_create)");
  }
  return thread;
}

inline void join_thread(pthread_t thread) { pthread_join(thread, nullptr); }

}  // namespace lab
