// Windows: the system's part of reports and hardening: random bytes, faults, residence, names for
// code.
#if defined(_WIN32)

#include "os/windows.h"

#include <psapi.h>

#include "os/os.h"

// RtlGenRandom; the system documents it under this name.
extern "C" BOOLEAN NTAPI SystemFunction036(void* out, ULONG bytes);

namespace loam::os {

void random_bytes(void* out, size_t bytes) {
  LastErrorGuard guard;
  if (SystemFunction036(out, static_cast<ULONG>(bytes))) return;
  // The seed is made of addresses of this process, and clocks.
  char* const to = static_cast<char*>(out);
  uint64_t state = now_ns() ^ reinterpret_cast<uintptr_t>(out) ^ wall_clock_ns() << 20 ^
                   uint64_t { GetCurrentProcessId() } << 32 ^ GetCurrentThreadId();
  for (size_t i = 0; i < bytes; ++i) {
    LARGE_INTEGER ticks;
    QueryPerformanceCounter(&ticks);
    state = (state ^ static_cast<uint64_t>(ticks.QuadPart)) * 6364136223846793005u +
            1442695040888963407u;
    to[i] = static_cast<char>(state >> 56);
  }
}

// The system does not distinguish faults that read a disk from other faults.
void count_faults(uint64_t* minor, uint64_t* major) {
  LastErrorGuard guard;
  PROCESS_MEMORY_COUNTERS counters{};
  counters.cb = sizeof counters;
  *major = 0;
  *minor = GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters)
               ? counters.PageFaultCount
               : 0;
}

namespace {

using FaultReport = bool (*)(const void* address);
constinit FaultReport fault_report = nullptr;

LONG WINAPI look_at_exception(EXCEPTION_POINTERS* what) {
  const EXCEPTION_RECORD& record = *what->ExceptionRecord;
  if (record.ExceptionCode == EXCEPTION_ACCESS_VIOLATION && record.NumberParameters >= 2)
    static_cast<void>(fault_report(reinterpret_cast<const void*>(record.ExceptionInformation[1])));
  return EXCEPTION_CONTINUE_SEARCH;
}

}  // namespace

// Runs after the program's own handlers, so faults that the program handles are not reported.
void report_faults(bool (*report)(const void* address)) {
  LastErrorGuard guard;
  fault_report = report;
  stay_loaded();
  AddVectoredContinueHandler(0, &look_at_exception);
}

size_t callers(Caller, const void**, size_t) { return 0; }

bool describe_code(const void* code, char* out, size_t size) {
  LastErrorGuard guard;
  HMODULE module = nullptr;
  const DWORD flags =
      GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (!GetModuleHandleExW(flags, static_cast<const wchar_t*>(code), &module)) return false;
  wchar_t path[MAX_PATH];
  DWORD length = GetModuleFileNameW(module, path, MAX_PATH);
  if (length == 0 || length == MAX_PATH) return false;
  DWORD name = length;
  while (name != 0 && path[name - 1] != L'\\') --name;
  size_t at = 0;
  for (; name < length && at + 24 < size; ++name, ++at) {
    const wchar_t c = path[name];
    out[at] = c < 0x20 || c > 0x7e ? '?' : static_cast<char>(c);
  }
  if (at + 24 > size) return false;
  out[at++] = '+';
  out[at++] = '0';
  out[at++] = 'x';
  const uint64_t offset = reinterpret_cast<uintptr_t>(code) - reinterpret_cast<uintptr_t>(module);
  for (int shift = 60; shift >= 0; shift -= 4) {
    if (offset >> shift != 0 || shift == 0) out[at++] = "0123456789abcdef"[(offset >> shift) & 15];
  }
  out[at] = '\0';
  return true;
}

}  // namespace loam::os

#endif  // _WIN32
