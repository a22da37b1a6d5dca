// The functions that the hardened heap is built on: the heap's own paths, without its detours. The
// heap layer hands them over when hardening starts; a program that is not hardened has none.
#pragma once

#include "base/config.h"

namespace loam {

struct PlainHeap {
  /// A slot of the class, at any alignment. Null when the system refuses memory.
  void* (*allocate_small)(unsigned size_class, size_t bytes);
  /// A slot from the class's own spans, so at a multiple of its size from a page's start.
  void* (*allocate_own_slot)(unsigned size_class);
  void (*free_small)(unsigned size_class, void* block);

  /// A block of whole pages with `extra` bytes behind those requested. Null when the system refuses
  /// memory.
  void* (*allocate_pages)(size_t bytes, size_t alignment, size_t extra, bool* zero);
  /// Also frees a private heap's block, and reports a pointer that is no block.
  void (*free_large)(void* block);
  /// True if a live block of a private heap starts there. Any value is answered.
  bool (*is_private)(const void* block);
};

}  // namespace loam
