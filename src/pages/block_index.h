// An index of blocks by the length of their longest run. It finds the smallest run that fits in
// O(1).
//
// One list per length 0 < n <= 512 and one set of the lists that are not empty. The length under
// which a block is listed is an upper bound of its longest run. Taking pages may leave the bound
// too high; the next search that finds no such run in the block corrects it. So taking never
// rescans.
//
// Lock: the page heap's. promises_less() needs none.
#pragma once

#include "base/bin_set.h"
#include "map/records.h"

namespace loam {

template <class Tag, uint16_t Block::*Bin>
class BlockIndex {
 public:
  /// Lists the block under `longest` (0 = removes it).
  void place(Block* block, unsigned longest) {
    const unsigned old = block->*Bin;
    if (old == longest) return;
    if (old != 0) {
      lists_[old].remove(block);
      if (lists_[old].empty()) occupied_.clear(old);
    }
    block->*Bin = static_cast<uint16_t>(longest);
    if (longest != 0) {
      lists_[longest].push_front(block);
      occupied_.set(longest);
    }
  }

  /// A block whose bound is the smallest that is at least `length`; null if there is none.
  [[nodiscard]] Block* smallest(unsigned length) const {
    const unsigned bin = occupied_.find_set(length);
    return bin == kBins ? nullptr : lists_[bin].front();
  }

  /// Whether some block's bound is at least `from` and less than `below`, at some moment. Needs no
  /// lock.
  [[nodiscard]] LOAM_INLINE bool promises_less(unsigned from, unsigned below) const {
    return occupied_.find_set(from) < below;
  }

  /// The longest bound in the index, 0 when it is empty.
  [[nodiscard]] unsigned longest() const {
    const unsigned bin = occupied_.last();
    return bin == kBins ? 0 : bin;
  }

  [[nodiscard]] bool is_valid() const {
    for (unsigned n = 1; n <= kPagesPerBlock; ++n) {
      if (occupied_.test(n) == lists_[n].empty() || !lists_[n].is_valid()) return false;
      for (const Block* b : lists_[n]) {
        if (b->*Bin != n) return false;
      }
    }
    return occupied_.is_valid();
  }

 private:
  static constexpr unsigned kBins = 576;  // 0 .. 512, rounded up to whole words
  // The list of the longest runs is last, beside the set. A small heap has one block, nearly all of
  // it free, so it touches one page here.
  List<Block, Tag> lists_[kPagesPerBlock + 1];
  BinSet<kBins> occupied_;
};

using FreeIndex = BlockIndex<FreeList, &Block::free_bin>;
using DirtyIndex = BlockIndex<DirtyList, &Block::dirty_bin>;

}  // namespace loam
