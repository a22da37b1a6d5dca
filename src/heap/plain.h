// What the hardened heap stands on: the heap's own ways without the detours of hardening. Implemented in heap.cpp.
#pragma once

#include "base/config.h"

namespace loam {

/// The detours that malloc() and free() take: all magazines are armed then (thread_cache.h), so that every call takes
/// the slow path and comes to look here. Zero, and nothing else, in a program that asked for none.
enum Detour : unsigned { kSampled = 1, kHardened = 2, kGuarded = 4 };
extern constinit unsigned detours;
/// Once a detour, before threads start.
void take_detour(Detour detour);
/// The same, but magazines are not armed: for who needs to see no more than the calls that are slow anyway.
void take_rare_detour(Detour detour);

namespace heap::plain {

/// A slot of the class, whatever its alignment. Null when memory is refused.
[[nodiscard]] void* allocate_small(unsigned size_class, size_t bytes);
/// A slot from the class's own spans, so at a multiple of its size from a page's start.
[[nodiscard]] void* allocate_own_slot(unsigned size_class);
void free_small(unsigned size_class, void* block);

/// A block of whole pages that has `extra` bytes behind those asked for. Null when memory is refused.
[[nodiscard]] void* allocate_pages(size_t bytes, size_t alignment, size_t extra, bool* zero);
/// Also a private heap's block, and what is none: then it reports.
void free_large(void* block);

/// Whether a small block that shrinks should stay in its slot.
[[nodiscard]] bool worth_staying(size_t slot_bytes, size_t bytes);

}  // namespace heap::plain
}  // namespace loam
