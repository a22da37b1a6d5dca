// The common data of the workers: the table of slots, and the totals.
//
// The data are in memory of their own, from mmap. So the heap under test cannot corrupt the model,
// and the model makes no requests to the heap.
#ifndef LOAM_TESTS_STRESS_SHARED_H
#define LOAM_TESTS_STRESS_SHARED_H

#include <semaphore.h>

#include <atomic>
#include <cstdint>

#include "block.h"
#include "options.h"

namespace stress {

// A place for one block. The thread that sets `busy` may use the rest. No thread waits for it, so a
// fork finds each slot either idle and whole, or busy and left alone.
struct Slot {
  std::atomic<bool> busy;
  Block block;  // none if block.start is null

  bool try_acquire() { return !busy.exchange(true, std::memory_order_acquire); }
  void release() { busy.store(false, std::memory_order_release); }
};

struct Shared {
  Options options;
  Slot* slots = nullptr;
  int64_t deadline = 0;  // CLOCK_MONOTONIC nanoseconds; 0: none
  sem_t finished;        // posted by each worker that ends
  std::atomic<int64_t> live_bytes{0};
  std::atomic<int64_t> peak_live_bytes{0};
  std::atomic<uint64_t> operations{0};
  std::atomic<uint64_t> digest{0};  // of all requests; the same wherever the seed is the same
  std::atomic<uint64_t> forks{0};
  std::atomic<uint64_t> refusals{0};  // allocations that failed under --limit-mib

  void add_live(size_t bytes) {
    const auto added = static_cast<int64_t>(bytes);
    const int64_t now = live_bytes.fetch_add(added) + added;
    auto peak = peak_live_bytes.load();
    while (now > peak && !peak_live_bytes.compare_exchange_weak(peak, now)) {
    }
  }
  void remove_live(size_t bytes) { live_bytes.fetch_sub(static_cast<int64_t>(bytes)); }
};

}  // namespace stress

#endif
