// The program's operator new and delete, in the three ways that article 004 compared: directly
// through malloc, through the system's aligned allocation, and through an aligned wrapper made by
// hand. The wrapper requests more from malloc, and hides the block's address in front of the
// aligned one:
//
//   malloc's block:  | slack | address of this block : 8 | object ... |
//                                                          ^ aligned
//
// One source file includes this. The way may change only while no block of the old way is live.
// Excepted are blocks from before main(), which are malloc's and are never freed in another way:
// call set_way(kMalloc) before leaving main().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "harness/allocator.h"
#include "harness/block.h"

namespace functors {

enum class Way { kMalloc, kAligned, kPadded };
inline Way way = Way::kMalloc;
inline size_t alignment = 32;

inline void* allocate(size_t n) {
  if (way == Way::kMalloc) return lab::must(std::malloc(n ? n : 1), n);
  if (way == Way::kAligned) return lab::must(lab::allocate_aligned(alignment, n ? n : 1), n);
  void* block = lab::must(std::malloc(n + alignment + sizeof(void*)), n + 1);
  const uintptr_t first = reinterpret_cast<uintptr_t>(block) + sizeof(void*);
  auto* object = reinterpret_cast<void**>((first + alignment - 1) & ~(alignment - 1));
  object[-1] = block;
  return object;
}

inline void release(void* p) {
  if (p == nullptr) return;
  if (way == Way::kAligned) return lab::free_aligned(p);
  std::free(way == Way::kPadded ? static_cast<void**>(p)[-1] : p);
}

}  // namespace functors

void* operator new(size_t n) { return functors::allocate(n); }
void* operator new[](size_t n) { return functors::allocate(n); }
void operator delete(void* p) noexcept { functors::release(p); }
void operator delete[](void* p) noexcept { functors::release(p); }
void operator delete(void* p, size_t) noexcept { functors::release(p); }
void operator delete[](void* p, size_t) noexcept { functors::release(p); }
