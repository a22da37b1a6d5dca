// loam.dll that is loaded late, used by threads that were there before, and unloaded while they
// run.
#include <loam/loam.h>
#include <windows.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

int main(int, char** arguments) {
  std::atomic<int> phase{0}, done{0};
  decltype(&loam_alloc) alloc = nullptr;
  decltype(&loam_free) give = nullptr;
  decltype(&loam_default) heap = nullptr;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      while (phase.load() < 1) Sleep(1);
      for (size_t n = 0; n < 5'000; ++n) {
        void* const block = alloc(heap(), n % 3'000 + 1);
        CHECK(block != nullptr && give(heap(), block) == LOAM_OK);
      }
      ++done;
      while (phase.load() < 2) Sleep(1);
    });
  }
  const HMODULE module = LoadLibraryA(arguments[1]);
  CHECK(module != nullptr);
  const auto symbol = [&](const char* name) {
    void* const found = reinterpret_cast<void*>(GetProcAddress(module, name));
    CHECK(found != nullptr);
    return found;
  };
  alloc = reinterpret_cast<decltype(alloc)>(symbol("loam_alloc"));
  give = reinterpret_cast<decltype(give)>(symbol("loam_free"));
  heap = reinterpret_cast<decltype(heap)>(symbol("loam_default"));
  phase = 1;
  while (done.load() < 8) Sleep(1);
  CHECK(FreeLibrary(module));
  CHECK(GetModuleHandleA("loam.dll") == nullptr);
  phase = 2;  // threads that the library knew end without it
  for (std::thread& one : threads) one.join();
  return 0;
}
