// One request of a thread's cache for blocks of a size class, and the blocks that it has got so
// far.
//
//   out           next              out + wanted
//    |             |                 |
//    [  missing()  |      got()      ]   filled from its end down: the first to come is used first
//
// A cache's magazine is a stack whose top is the last place, so the blocks that came first are
// handed out first. Each source of blocks (small_heap.h) adds below the blocks that are already
// there.
#pragma once

#include "base/units.h"

namespace loam {

struct Refill {
  unsigned size_class;
  void** out;                   ///< room for `wanted` pointers, or `room`
  unsigned wanted;              ///< blocks; 1 or more
  const void* taker = nullptr;  ///< any address of the calling cache, as its name; null: no stash
                                ///< serves
  unsigned enough = ~0u;        ///< with this many, no span is taken that would keep free slots
  unsigned room =
      0;  ///< places from `out` on that a batch of a stash may fill, if more than `wanted`
  unsigned home = 0;  ///< the taker's home, for bins and parts of mixed spans

  void** next = out + wanted;  ///< the last pointer written
  Pages fresh{};               ///< fresh pages that were taken for the refill

  [[nodiscard]] unsigned missing() const { return static_cast<unsigned>(next - out); }
  [[nodiscard]] unsigned got() const { return wanted - missing(); }
  /// A refill of `blocks` of the missing blocks. The caller then copies its `next` to this refill.
  [[nodiscard]] Refill part(unsigned blocks) const {
    return {.size_class = size_class, .out = next - blocks, .wanted = blocks, .home = home};
  }
  /// Moves the blocks to the beginning of `out`. Returns how many.
  LOAM_INLINE unsigned finish() {
    const unsigned count = got();
    // Called only if necessary, because otherwise a program's start would fault memmove() in.
    if (LOAM_UNLIKELY(next != out) && count != 0)
      __builtin_memmove(out, next, count * sizeof(void*));
    return count;
  }
};

}  // namespace loam
