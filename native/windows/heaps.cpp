// Describes in one line the system's heap on which the workloads run beside Loam: its vendor, and
// the mode of its front end. The mode is read after a request for it, and after eighteen
// allocations of one size, which switch it on in Windows.
#include <stdio.h>
#include <windows.h>

namespace {

ULONG mode_of(HANDLE heap) {
  ULONG mode = 99;
  HeapQueryInformation(heap, HeapCompatibilityInformation, &mode, sizeof mode, nullptr);
  return mode;
}

}  // namespace

int main() {
  const HANDLE used = HeapCreate(0, 0, 0), asked = HeapCreate(0, 0, 0);
  for (int i = 0; i < 18; ++i) HeapAlloc(used, 0, 40);
  ULONG wanted = 2;
  HeapSetInformation(asked, HeapCompatibilityInformation, &wanted, sizeof wanted);
  const auto version = reinterpret_cast<const char* (*)()>(
      reinterpret_cast<void*>(GetProcAddress(GetModuleHandleA("ntdll.dll"), "wine_get_version")));
  printf("%s %s; heap mode %lu after 18 equal allocations, %lu after mode 2 was requested\n",
         version != nullptr ? "Wine" : "Windows", version != nullptr ? version() : "",
         mode_of(used), mode_of(asked));
  return 0;
}
