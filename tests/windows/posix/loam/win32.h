// <loam/win32.h>, which is <windows.h> here, with the parts that mingw-w64's lacks. HeapSummary()
// is newer than Windows 8, and Wine's ends the process. There the figures are sums over a walk, and
// no argument is refused.
#pragma once

#undef _WIN32_WINNT
#define _WIN32_WINNT 0x0602
#define HeapSummary loam_no_heap_summary
#include_next <loam/win32.h>
#undef HeapSummary
#undef small

#ifdef __cplusplus
extern "C" {
#endif

#define HeapOptimizeResources ((HEAP_INFORMATION_CLASS)3)
#define HEAP_OPTIMIZE_RESOURCES_CURRENT_VERSION 1
typedef struct {
  DWORD Version;
  DWORD Flags;
} HEAP_OPTIMIZE_RESOURCES_INFORMATION;

static inline BOOL HeapSummary(HANDLE heap, DWORD flags, HEAP_SUMMARY* out) {
  typedef BOOL(WINAPI * Function)(HANDLE, DWORD, HEAP_SUMMARY*);
  const Function found =
      (Function)(void*)GetProcAddress(GetModuleHandleA("kernelbase.dll"), "HeapSummary");
  if (found != NULL && !is_wine()) return found(heap, flags, out);
  const DWORD before = GetLastError();
  PROCESS_HEAP_ENTRY entry;
  entry.lpData = NULL;
  out->cbAllocated = out->cbCommitted = out->cbReserved = 0;
  HeapLock(heap);
  while (HeapWalk(heap, &entry)) {
    if (entry.wFlags & PROCESS_HEAP_ENTRY_BUSY) out->cbAllocated += entry.cbData;
    if (!(entry.wFlags & PROCESS_HEAP_REGION)) continue;
    out->cbCommitted += entry.Region.dwCommittedSize;
    out->cbReserved += entry.Region.dwCommittedSize + entry.Region.dwUnCommittedSize;
  }
  HeapUnlock(heap);
  SetLastError(before);
  return TRUE;
}

size_t _aligned_msize(void* block, size_t alignment, size_t offset);

#ifdef __cplusplus
}
#endif
