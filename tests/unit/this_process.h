// What tests ask the system about their own process, including what exists only on Linux: fork(),
// and whether a thread sleeps. A test about fork() begins with `if (!kCanFork) GTEST_SKIP()`. Other
// tests leave out the child's part if there is no fork().
#pragma once

#include <cstddef>
#include <cstdio>

#if defined(_WIN32)

#include "os/windows.h"

#include <psapi.h>

namespace loam::test {

inline constexpr bool kCanFork = false, kTellsSleep = false, kKeysEndFirst = true,
                      kHasShell = false;

inline size_t resident_bytes() {
  PROCESS_MEMORY_COUNTERS counters{};
  counters.cb = sizeof counters;
  return GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters)
             ? counters.WorkingSetSize
             : 0;
}

inline long this_thread() { return static_cast<long>(GetCurrentThreadId()); }
inline bool sleeps(long) { return false; }

// The result in the parent of a child that ended well.
inline int fork() { return 1; }
inline int waitpid(int child, int* status, int) { return *status = 0, child; }
inline void alarm(unsigned) {}

}  // namespace loam::test

#else

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace loam::test {

inline constexpr bool kCanFork = true, kTellsSleep = true, kKeysEndFirst = false, kHasShell = true;

inline size_t resident_bytes() {
  unsigned long total = 0, resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%lu %lu", &total, &resident) != 2) resident = 0;
  if (file != nullptr) std::fclose(file);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

inline long this_thread() { return syscall(SYS_gettid); }

/// Whether that thread of this process sleeps, according to the kernel. A thread that only waits
/// for a processor does not sleep.
inline bool sleeps(long thread) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%ld/stat", thread);
  FILE* file = fopen(path, "r");
  if (file == nullptr) return false;
  char state = '?';
  const int found = fscanf(file, "%*d (%*[^)]) %c", &state);
  fclose(file);
  return found == 1 && state == 'S';
}

using ::alarm, ::fork, ::waitpid;

}  // namespace loam::test

#endif
