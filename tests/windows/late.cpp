// loam.dll is loaded late, and used by threads that existed before. After an unload it stays, as
// libloam.so does on Linux, because blocks, caches of threads and the loader's callbacks outlive
// the call. To load it again costs nothing.
//
//   late LOAM.DLL
#include <loam/loam.h>
#include <loam/stats.h>
#include <windows.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "free_slots.h"

namespace {

template <class Function>
Function symbol(HMODULE module, const char* name) {
  void* const found = reinterpret_cast<void*>(GetProcAddress(module, name));
  CHECK(found != nullptr);
  return reinterpret_cast<Function>(found);
}

}  // namespace

int main(int, char** arguments) {
  std::atomic<int> phase{0}, done{0};
  decltype(&loam_alloc) alloc = nullptr;
  decltype(&loam_free) give = nullptr;
  decltype(&loam_default) heap = nullptr;
  const auto churn = [&] {
    for (size_t n = 0; n < 5'000; ++n) {
      void* const block = alloc(heap(), n % 3'000 + 1);
      CHECK(block != nullptr && give(heap(), block) == LOAM_OK);
    }
    ++done;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      while (phase.load() < 1) Sleep(1);
      churn();
      while (phase.load() < 2) Sleep(1);
      churn();
    });
  }
  HMODULE module = LoadLibraryA(arguments[1]);
  CHECK(module != nullptr);
  alloc = symbol<decltype(alloc)>(module, "loam_alloc");
  give = symbol<decltype(give)>(module, "loam_free");
  heap = symbol<decltype(heap)>(module, "loam_default");
  phase = 1;
  while (done.load() < 8) Sleep(1);
  char* const block = static_cast<char*>(alloc(heap(), 100));
  std::memset(block, 7, 100);

  CHECK(FreeLibrary(module));
  CHECK(GetModuleHandleA("loam.dll") == module);
  const DWORD left = free_slots();
  for (int i = 0; i < 400; ++i) {
    CHECK(LoadLibraryA(arguments[1]) == module && FreeLibrary(module));
  }
  CHECK(free_slots() == left);
  CHECK(block[0] == 7 && block[99] == 7 && give(heap(), block) == LOAM_OK);

  phase = 2;  // the threads continue to use it, and return their cached blocks when they end
  for (std::thread& one : threads) one.join();
  CHECK(done.load() == 16);
  struct loam_stats stats;
  stats.size = sizeof stats;
  CHECK(symbol<decltype(&loam_stats)>(module, "loam_stats")(nullptr, &stats) == LOAM_OK);
  CHECK(stats.threads == 1 && stats.live_blocks == 0);
  return 0;
}
