// One request of a thread's cache for blocks of a size class, and what it has got so far.
//
//   out           next              out + wanted
//    |             |                 |
//    [  missing()  |      got()      ]       filled from its end down: what came first is used first
//
// A cache's magazine is a stack whose top is the last place, so the blocks that came first are
// handed out first. Each source of blocks (small_heap.h) adds below what is there already.
#pragma once

#include "base/units.h"

namespace loam {

struct Refill {
  unsigned size_class;
  void** out;                   ///< room for `wanted` pointers, or `room`
  unsigned wanted;              ///< blocks; 1 or more
  const void* taker = nullptr;  ///< the cache that asks, any address of its own; null: no stash
                                ///< serves
  unsigned enough = ~0u;        ///< with so many there, no span is taken that would be left in part
  unsigned room =
      0;  ///< places behind `out` that a batch of a stash may fill, if more than `wanted`
  unsigned home = 0;  ///< the taker's, among bins and shards of mixed spans

  void** next = out + wanted;  ///< the last pointer that was put down
  Pages fresh{};               ///< pages that held no memory and were taken for it

  [[nodiscard]] unsigned missing() const { return static_cast<unsigned>(next - out); }
  [[nodiscard]] unsigned got() const { return wanted - missing(); }
  /// A refill of so many of the missing blocks; then `next` is this one's too.
  [[nodiscard]] Refill part(unsigned blocks) const {
    return {.size_class = size_class, .out = next - blocks, .wanted = blocks, .home = home};
  }
  /// What came stands at the beginning of `out` from here on. Returns how many.
  LOAM_INLINE unsigned finish() {
    const unsigned count = got();
    // Not for nothing: a program's start would fault memmove() in.
    if (LOAM_UNLIKELY(next != out) && count != 0)
      __builtin_memmove(out, next, count * sizeof(void*));
    return count;
  }
};

}  // namespace loam
