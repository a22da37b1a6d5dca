// What the hardened heap stands on: the heap's own ways, without its detours, as a set of
// functions. The heap above hands it over when hardening starts; a program that is not hardened has
// none.
#pragma once

#include "base/config.h"

namespace loam {

struct PlainHeap {
  /// A slot of the class, whatever its alignment. Null when memory is refused.
  void* (*allocate_small)(unsigned size_class, size_t bytes);
  /// A slot from the class's own spans, so at a multiple of its size from a page's start.
  void* (*allocate_own_slot)(unsigned size_class);
  void (*free_small)(unsigned size_class, void* block);

  /// A block of whole pages that has `extra` bytes behind those asked for. Null when memory is
  /// refused.
  void* (*allocate_pages)(size_t bytes, size_t alignment, size_t extra, bool* zero);
  /// Also a private heap's block, and what is none: then it reports.
  void (*free_large)(void* block);
  /// Whether a live block of a private heap starts there. Any value is answered.
  bool (*is_private)(const void* block);
};

}  // namespace loam
