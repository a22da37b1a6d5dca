// Writing to a block, so that resident memory means something.
#pragma once

#include <cstddef>

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
  fail(kExitFailed, "workload: the allocator had no memory for a request; lower the sizes or "
                    "counts (--help lists them)");
}

}  // namespace lab
