// An index of slabs by the length of their longest run. It finds the smallest run that fits in
// O(1).
//
// One list per length 0 < n <= 512 and one set of the lists that are not empty. The length under
// which a slab is listed is an upper bound of its longest run. Taking pages may leave the bound
// too high; the next search that finds no such run in the slab corrects it. So taking never
// rescans.
//
// Lock: the page heap's. promises_less() needs none.
#pragma once

#include "base/bin_set.h"
#include "map/records.h"

namespace loam {

template <class Tag, uint16_t Slab::*Bin>
class SlabIndex {
 public:
  /// Lists the slab under `longest` (0 = removes it).
  void place(Slab* slab, unsigned longest) {
    const unsigned old = slab->*Bin;
    if (old == longest) return;
    if (old != 0) {
      lists_[old].remove(slab);
      if (lists_[old].empty()) occupied_.clear(old);
    }
    slab->*Bin = static_cast<uint16_t>(longest);
    if (longest != 0) {
      lists_[longest].push_front(slab);
      occupied_.set(longest);
    }
  }

  /// A slab whose bound is the smallest that is at least `length`; null if there is none.
  [[nodiscard]] Slab* smallest(unsigned length) const {
    const unsigned bin = occupied_.find_set(length);
    return bin == kBins ? nullptr : lists_[bin].front();
  }

  /// Whether some slab's bound is at least `from` and less than `below`, at some moment. Needs no
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
    for (unsigned n = 1; n <= kPagesPerSlab; ++n) {
      if (occupied_.test(n) == lists_[n].empty() || !lists_[n].is_valid()) return false;
      for (const Slab* b : lists_[n]) {
        if (b->*Bin != n) return false;
      }
    }
    return occupied_.is_valid();
  }

 private:
  static constexpr unsigned kBins = 576;  // 0 .. 512, rounded up to whole words
  // The list of the longest runs is last, beside the set. A small heap has one slab, nearly all of
  // it free, so it touches one page here.
  List<Slab, Tag> lists_[kPagesPerSlab + 1];
  BinSet<kBins> occupied_;
};

using FreeIndex = SlabIndex<FreeList, &Slab::free_bin>;
using DirtyIndex = SlabIndex<DirtyList, &Slab::dirty_bin>;

}  // namespace loam
