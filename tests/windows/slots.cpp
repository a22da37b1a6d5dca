// A program whose other libraries took the system's thread slots before the heap could: some near
// ones, all near ones, or all slots. The heap still serves every thread.
#include <loam/loam.h>
#include <loam/stats.h>
#include <windows.h>

#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "os/thread_pointer.h"

namespace {

int taken = 0;
DWORD last = 0;

// The loader calls this before the first allocation of the program.
void WINAPI take_slots(void*, DWORD reason, void*) {
  if (reason != DLL_PROCESS_ATTACH) return;
  while (taken < LOAM_TEST_SLOTS && (last = TlsAlloc()) != TLS_OUT_OF_INDEXES) ++taken;
  // The heap requests its slots now. Then some are freed for the C++ run-time, which ends without
  // one.
  free(malloc(1));
  for (DWORD slot = 100; taken > 1000 && slot < 132; ++slot) TlsFree(slot);
}

void churn() {
  std::vector<void*> blocks;
  for (size_t i = 0; i < 5'000; ++i) {
    blocks.push_back(malloc(i % 2'000 + 1));
    CHECK(blocks.back() != nullptr);
    memset(blocks.back(), 1, i % 2'000 + 1);
  }
  for (void* block : blocks) free(block);
}

}  // namespace

extern "C" {
__attribute__((section(".CRT$XLA_"), used)) PIMAGE_TLS_CALLBACK take_slots_first = &take_slots;
}

namespace {

// Checks that the slots' places, and whether threads have caches, are as intended.
void the_way_is_the_one_that_is_tried() {
  using loam::os::thread_slots;
  struct loam_stats stats;
  stats.size = sizeof stats;
  CHECK(loam_stats(nullptr, &stats) == LOAM_OK);
  if (LOAM_TEST_SLOTS > 1000) {
    CHECK(thread_slots[0] == loam::os::kSlotRefused && stats.threads == 0);
    return;
  }
  // The slots of current_cache and fast_cache (cache/thread_cache.h).
  for (unsigned pointer : {0, 3}) {
    const uint32_t slot = thread_slots[pointer];
    CHECK(slot < 1088 && (slot >= 64 || LOAM_TEST_SLOTS < 64));
  }
  CHECK(stats.threads == 1);
}

}  // namespace

int main() {
  CHECK(taken >= (LOAM_TEST_SLOTS > 1000 ? 900 : LOAM_TEST_SLOTS));
  churn();
  the_way_is_the_one_that_is_tried();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back(churn);
  for (std::thread& one : threads) one.join();
  return 0;
}
