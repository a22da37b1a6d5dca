// Memory of the replayer itself. It is mapped apart from the heap, has a name that distinguishes
// it, has no huge pages and, where the limit allows, is locked. All of it is there before the
// baseline is taken.
#pragma once

#include <sys/mman.h>
#include <sys/prctl.h>

#include "harness/system.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

namespace replay {

// `backed`: every page is written to at once. Other pages count when they are used.
inline void* own_memory(uint64_t bytes, bool backed) {
  bytes = (bytes + 2 * lab::kPageBytes) & ~uint64_t{lab::kPageBytes - 1};
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    lab::fail(lab::kExitFailed,
              "replay: no memory for the replayer's own tables (mmap): ", strerror(errno));
  }
  // All three are optional: older kernels know no names, and limits may forbid locking.
  (void)::prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, bytes, "loam replay");
  (void)::madvise(p, bytes, MADV_NOHUGEPAGE);
  if (backed) {
    for (uint64_t i = 0; i < bytes; i += lab::kPageBytes) static_cast<volatile char*>(p)[i] = 0;
    (void)::mlock(p, bytes);
  }
  return p;
}

}  // namespace replay
