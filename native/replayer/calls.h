// The calls of a trace, as the program made them: the same function, bytes and alignment. The
// numbers are those of formats/trace.toml.
#pragma once

#include <malloc.h>

#include <cstdlib>
#include <new>

#include "harness/block.h"
#include "program.h"

namespace replay {

inline void* allocate(const Operation& op) {
  const uint64_t bytes = op.bytes();
  const uint64_t alignment = uint64_t{1} << op.alignment_log();
  switch (op.family()) {
    case 1:
      return std::calloc(1, bytes);
    case 2: {
      void* block = nullptr;
      const uint64_t least = alignment < sizeof(void*) ? sizeof(void*) : alignment;
      return ::posix_memalign(&block, least, bytes) == 0 ? block : nullptr;
    }
    case 3:
      return ::memalign(lab::kPageBytes, bytes);
    case 4:
      return ::operator new(bytes, std::nothrow);
    case 5:
      return ::operator new[](bytes, std::nothrow);
    case 6:
      return ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);
    case 7:
      return ::operator new[](bytes, std::align_val_t{alignment}, std::nothrow);
    default:
      return std::malloc(bytes);
  }
}

inline void release(const Operation& op, void* block) {
  switch (op.family()) {
    case 2:
      return ::operator delete(block);
    case 3:
      return ::operator delete(block, op.bytes());
    case 4:
      return ::operator delete[](block);
    case 5:
      return ::operator delete[](block, op.bytes());
    default:
      return std::free(block);
  }
}

// Writes to the pages that the program wrote to: all pages of a block under two pages, and the
// recorded number of pages, from the start, of a larger one.
inline void touch(const Operation& op, void* block) {
  const uint64_t bytes = op.bytes();
  if (bytes == 0) return;
  if (bytes < 2 * lab::kPageBytes || op.touched() == kAllTouched) return lab::touch(block, bytes);
  auto* p = static_cast<volatile char*>(block);
  uint64_t pages = op.touched();
  for (uint64_t at = 0; at < bytes && pages > 0; at += lab::kPageBytes, --pages) p[at] = 1;
}

}  // namespace replay
