// A call of the heap as its observers see it.
//
// An observer is a class with a bit in detours() and two functions. Around each call that it
// watches, one object of it lives:
//
//   static constexpr Detour kDetour
//   template <Operation> void before(const Call&)
//   template <Operation> void after(const Call&, void* result)
#pragma once

#include "observers/detours.h"

namespace loam {

/// What observers tell apart. A call may be several of them: a realloc that moves a block allocates
/// and frees as well, and an aligned block is one of a class, or of pages.
enum class Operation : uint8_t {
  kAllocate,  ///< a block of a class
  kAllocatePages,
  kAllocateAligned,
  kFree,  ///< a block of a class
  kFreePages,
  kReallocate,
  kTryResize,  ///< without moving
  kStay,       ///< a block of a class stays in its slot with another size
  kResizeRun,  ///< a block of pages stays where it is
  kMove,  ///< the block's pages, or its contents, move by other means than a copy to a new block
};
inline constexpr unsigned kOperations = 10;

struct Call {
  void* block = nullptr;    ///< what is freed or resized
  size_t bytes = 0;         ///< requested
  size_t alignment = 0;     ///< 0: the call requested none
  size_t old_bytes = 0;     ///< of a block that stays or moves
  unsigned size_class = 0;  ///< 0: pages
};

[[nodiscard]] constexpr bool is_allocation(Operation operation) {
  return operation == Operation::kAllocate || operation == Operation::kAllocatePages;
}
[[nodiscard]] constexpr bool is_free(Operation operation) {
  return operation == Operation::kFree || operation == Operation::kFreePages;
}

}  // namespace loam
