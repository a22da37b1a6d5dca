// Threads in waves. Each returns its cached blocks when it ends, by the loader's callback. Each
// wave has a thread that frees another thread's blocks, and fibers that allocate on whichever
// thread runs them.
#include <loam/loam.h>
#include <loam/stats.h>
#include <windows.h>

#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "os/thread_pointer.h"

namespace {

constexpr int kWaves = 3, kThreads = 200;

void churn(unsigned seed) {
  std::vector<char*> blocks;
  for (unsigned i = 0; i < 1'000; ++i) {
    seed = seed * 1664525 + 1013904223;
    char* const block = static_cast<char*>(malloc(seed % 3'000 + 1));
    CHECK(block != nullptr);
    *block = static_cast<char>(i);
    blocks.push_back(block);
    if (blocks.size() > 200) {
      std::swap(blocks[seed / 7 % 200], blocks.back());
      free(blocks.back());
      blocks.pop_back();
    }
  }
  for (char* block : blocks) free(block);
}

uint64_t of_stats(uint64_t loam_stats::*field) {
  struct loam_stats stats {};
  stats.size = sizeof stats;
  CHECK(loam_stats(nullptr, &stats) == LOAM_OK);
  return stats.*field;
}

void waves_leave_nothing() {
  std::thread(churn, 1u).join();
  const uint64_t threads = of_stats(&loam_stats::threads);
  uint64_t used = 0;
  for (int wave = 0; wave < kWaves; ++wave) {
    std::vector<std::thread> running;
    for (int i = 0; i < kThreads; ++i)
      running.emplace_back(churn, static_cast<unsigned>(wave * kThreads + i));
    for (std::thread& one : running) one.join();
    CHECK(of_stats(&loam_stats::threads) == threads);
    const uint64_t now = of_stats(&loam_stats::cached_bytes);
    if (wave == 0) used = now;
    CHECK(now <= used + (1 << 20));
  }
}

void blocks_pass_from_thread_to_thread() {
  std::vector<void*> blocks;
  std::thread([&] {
    for (int i = 0; i < 20'000; ++i) blocks.push_back(malloc(64));
  }).join();
  std::thread([&] {
    for (void* block : blocks) free(block);
  }).join();
}

void* main_fiber = nullptr;

void WINAPI in_fiber(void* argument) {
  for (;;) {
    *static_cast<void**>(argument) = malloc(1'000);
    SwitchToFiber(main_fiber);
  }
}

// One fiber runs on two threads. Its blocks come from the thread that runs it.
void fibers_allocate_where_they_run() {
  void* block = nullptr;
  void* const fiber = CreateFiber(0, &in_fiber, &block);
  for (int i = 0; i < 2; ++i) {
    std::thread([&] {
      main_fiber = ConvertThreadToFiber(nullptr);
      SwitchToFiber(fiber);
      CHECK(block != nullptr && loam_heap_of(block) != nullptr);
      free(block);
      ConvertFiberToThread();
    }).join();
  }
  DeleteFiber(fiber);
}

// The fast path reads the thread's own block, without a call.
void the_slots_are_near() {
  free(malloc(1));
  // The slots of current_cache and fast_cache (cache/thread_cache.h).
  for (unsigned pointer : {0, 3}) CHECK(loam::os::thread_slots[pointer] < 64);
}

}  // namespace

int main() {
  the_slots_are_near();
  waves_leave_nothing();
  blocks_pass_from_thread_to_thread();
  fibers_allocate_where_they_run();
  return 0;
}
