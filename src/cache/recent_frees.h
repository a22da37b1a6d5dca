// The table of a thread's last frees, by which double frees are caught (decisions 2 and 44). By a
// hash of the pointer, it remembers the slots in which these frees lie; a pointer that still lies
// in its slot was freed already.
//
// The table is exact, is never wrong, and costs a few instructions. A double free that the table
// has forgotten (older than kRecent frees, or freed by another thread) is found when the block
// returns to its span, by its bit there.
#pragma once

#include "base/bits.h"
#include "base/cpu.h"

namespace loam {

class RecentFrees {
 public:
  static constexpr unsigned kRecentBits = 8;
  static constexpr unsigned kRecent = 1u << kRecentBits;

  [[nodiscard]] static LOAM_INLINE size_t index_of(const void* block) {
    // Fibonacci hashing of the low 32 bits: blocks of one span differ there.
    const uint32_t low = static_cast<uint32_t>(rotate_right(reinterpret_cast<uintptr_t>(block), 4));
    return (low * 0x9e3779b9u) >> (32 - kRecentBits);
  }

  // The slot of the noted free, if it is below the head. A slot from the head on is meaningless,
  // because its block was popped. Whether the slot is below the head follows the order of the
  // program's frees, which no branch predictor learns. So the choice is made without a branch, and
  // the other result is `none`, a place that has null and therefore no block.
  [[nodiscard]] LOAM_INLINE void* const* below(void* const* head, size_t index,
                                               void* const* none) const {
    return if_below<void* const>(slots_[index], head, none);
  }

  LOAM_INLINE void note(size_t index, void** slot) { slots_[index] = slot; }
  void note(const void* block, void** slot) { note(index_of(block), slot); }
  /// The block has moved from one slot to another.
  void move(const void* block, void** from, void** to) {
    void**& slot = slots_[index_of(block)];
    if (slot == from) slot = to;
  }
  /// Forgets what lies in an array that another thread may get.
  void forget(void** begin, void** end) {
    for (void**& slot : slots_) {
      if (slot >= begin && slot < end) slot = &no_block;
    }
  }
  void forget_all() {
    for (void**& slot : slots_) slot = &no_block;
  }

 private:
  static constinit inline void* no_block = nullptr;  // unused places of the table point to it
  void** slots_[kRecent] = {};                       // never null in a live cache
};

}  // namespace loam
