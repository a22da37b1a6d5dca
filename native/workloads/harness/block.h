// What experiments do with blocks: check them, write to them, and rest with one now and then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "system.h"

namespace lab {

// The first byte, the last byte, and one byte each 4 KiB between: every page the block lies on.
// (A block may straddle one page more than its size suggests; the last byte sees to that.)
inline void touch(void* block, size_t bytes) {
  auto* p = static_cast<volatile char*>(block);
  for (size_t i = 0; i < bytes; i += kPageBytes) p[i] = 1;
  p[bytes - 1] = 1;
}

// A null answer ends the experiment: its figures would describe another one.
inline void* must(void* block, size_t bytes) {
  if (block != nullptr || bytes == 0) return block;
  fail(kExitFailed,
       "workload: the allocator had no memory for a request; lower the sizes or "
       "counts (--help lists them)");
}

// A program at rest still does a little now and then, and heaps without a thread of their own
// notice that time passes only when they are called: one small block every 10 ms.
inline void idle(uint64_t ms) {
  for (uint64_t slept = 0; slept < ms; slept += 10) {
    sleep_ms(10);
    void* p = must(std::malloc(48), 48);
    touch(p, 48);
    std::free(p);
  }
}

}  // namespace lab
