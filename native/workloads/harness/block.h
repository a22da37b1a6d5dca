// What experiments do with blocks: check them, write to them, and allocate one now and then while
// idle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "system.h"

namespace lab {

// The first byte, the last byte, and one byte in each 4 KiB between them: every page of the block.
// (A block may lie on one page more than its size suggests; the last byte covers that page.)
inline void touch(void* block, size_t bytes) {
  auto* p = static_cast<volatile char*>(block);
  for (size_t i = 0; i < bytes; i += kPageBytes) p[i] = 1;
  p[bytes - 1] = 1;
}

// A null answer ends the experiment, because its figures would describe another one.
inline void* must(void* block, size_t bytes) {
  if (block != nullptr || bytes == 0) return block;
  fail(kExitFailed,
       "workload: the allocator had no memory for a request; lower the sizes or "
       "counts (--help lists them)");
}

// An idle program still does a little now and then. A heap without a thread of its own notices only
// in calls that time passes. So this allocates one small block every 10 ms.
inline void idle(uint64_t ms) {
  for (uint64_t slept = 0; slept < ms; slept += 10) {
    sleep_ms(10);
    void* p = must(std::malloc(48), 48);
    touch(p, 48);
    std::free(p);
  }
}

}  // namespace lab
