// What belongs to a thread and not to its cache: state of higher layers. It is here because static
// thread-local memory is scarce (dlopen).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace loam {

class ThreadCache;

struct ThreadState {
  void* heaps = nullptr;       ///< the thread's caches of private heaps; null until it has one, and
                               ///< always in a static cache
  uint8_t home = 0;            ///< the home whose bins and mixed spans serve it first
                               ///< (small/small_heap.h)
  int last_refusal = 0;        ///< the C interface's loam_last_status()
  uint32_t thread_number = 0;  ///< os::thread_number(), once the hardened heap asked for it
  /// Its thread's `fast_cache`; null where other threads cannot write it.
  ThreadCache** fast_pointer = nullptr;
  /// The last small block that realloc() made longer, and the bytes that it was last requested for.
  /// Always null in a static cache.
  const void* grown_block = nullptr;
  size_t grown_bytes = 0;

  /// Whether a realloc() to so many bytes makes that block shorter again: it has room to grow, and
  /// needs it no longer.
  [[nodiscard]] bool cuts(const void* block, size_t bytes) {
    if (LOAM_LIKELY(block != grown_block)) return false;
    if (bytes < grown_bytes) return true;
    grown_bytes = bytes;
    return false;
  }

  void end() {
    grown_block = nullptr;
    heaps = nullptr;
    last_refusal = 0;
    thread_number = 0;
  }
};

}  // namespace loam
