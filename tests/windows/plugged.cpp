// A plugin that contains the heap (plugin.c) is loaded and unloaded again and again, while threads
// that used it run. Each unloading returns the system's thread slots. The plugin stays if it has
// code that runs by itself (LOAM_PUBLISH) or that the system calls (LOAM_HARDEN=guards).
//
//   plugged PLUGIN.DLL goes|stays
#include <windows.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "free_slots.h"

namespace {

using Works = int (*)();

}  // namespace

int main(int, char** arguments) {
  const bool stays = std::strcmp(arguments[2], "stays") == 0;
  constexpr int kTimes = 300;  // four slots each time would be more than the system has
  std::atomic<int> asked{0}, answered{0};
  std::atomic<bool> counted{false};
  std::atomic<Works> works{nullptr};
  std::thread user([&] {
    for (int seen = 0; seen < kTimes;) {
      if (asked.load() == seen) {
        SwitchToThread();
        continue;
      }
      CHECK(works.load()());
      answered = ++seen;
    }
    while (!counted.load()) SwitchToThread();  // a thread that ends takes a slot for a moment
  });
  DWORD left = 0;
  for (int i = 0; i < kTimes; ++i) {
    const HMODULE module = LoadLibraryA(arguments[1]);
    CHECK(module != nullptr);
    const auto found =
        reinterpret_cast<Works>(reinterpret_cast<void*>(GetProcAddress(module, "plugin_works")));
    CHECK(found != nullptr && found());
    works = found;
    asked = i + 1;
    while (answered.load() != i + 1) SwitchToThread();
    CHECK(FreeLibrary(module));
    CHECK((GetModuleHandleA("windows_plugin.dll") != nullptr) == stays);
    if (i == 0) left = free_slots();
    CHECK(free_slots() == left);
  }
  counted = true;
  user.join();
  if (!stays) return 0;
  Sleep(1000);  // its thread still runs, and the functions that the system calls exist
  return 0;
}
