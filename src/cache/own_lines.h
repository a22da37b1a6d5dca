// Blocks smaller than a cache line, and the lines that they share (decision 23).
//
// Such blocks can make their line move to and fro between two cores. This happens when another
// thread allocated the block beside a block to which this thread still writes, and this thread
// frees it and hands it out again: the line moves for as long as both blocks live. The thread that
// allocated a block is not known. But when more blocks lie in a magazine than its thread took, one
// of them is another thread's. So the magazine's limit (high) is the number of blocks that the
// thread took. A few more frees are put at the bottom of the magazine: such blocks are handed out
// last and return to their spans first.
#pragma once

#include "cache/magazines.h"
#include "cache/recent_frees.h"
#include "small/size_class_table.h"

namespace loam {

class OwnLines {
 public:
  /// The most blocks of other threads that are put below: a thread that goes on freeing blocks that
  /// it never allocates is a consumer.
  static constexpr uint32_t kMostBelow = 16;

  /// Blocks of these classes share cache lines; class 0 has no blocks.
  [[nodiscard]] static bool shares_lines(unsigned size_class) { return size_class <= kLineClasses; }

  /// Ends a magazine where the thread's own blocks do. pre: shares_lines()
  void limit(unsigned size_class, Magazine m) {
    Own& own = own_[size_class];
    if (own.below == kMostBelow) return;
    const uint32_t held = m.held();
    if (own.level < held) own.level = held;
    if (m.base + own.level < m.high) m.high = m.base + own.level;
  }

  void note_taken(unsigned size_class, unsigned count) {
    own_[size_class].level += count;
    own_[size_class].below = 0;
  }
  void note_given(unsigned size_class, unsigned count) {
    uint32_t& level = own_[size_class].level;
    level -= count < level ? count : level;
  }

  /// Whether the next block must be another thread's, and has room below. pre: shares_lines()
  [[nodiscard]] bool takes_below(unsigned size_class, Magazine m, unsigned capacity) const {
    const Own& own = own_[size_class];
    return own.below != kMostBelow && m.head == m.base + own.level && own.level < capacity;
  }
  [[nodiscard]] bool has_none(unsigned size_class) const { return own_[size_class].level == 0; }
  void set_level(unsigned size_class, uint32_t level) { own_[size_class].level = level; }
  /// pre: takes_below()
  void put_below(unsigned size_class, Magazine m, void* block, RecentFrees& recent) {
    Own& own = own_[size_class];
    void** const top = m.head;
    void** const place = own.below < own.level ? m.base + own.below : top;
    if (place != top) {
      // The block in that slot moves to the top. A fork() before the head moves loses it in the
      // child; any other order would have it there twice.
      void* const moved = *place;
      recent.move(moved, place, top);
      __atomic_store_n(top, moved, __ATOMIC_RELAXED);
    }
    recent.note(block, place);
    __atomic_store_n(place, block, __ATOMIC_RELEASE);
    m.set_head(top + 1);
    ++own.level;
    ++own.below;
  }
  void reset() {
    for (Own& own : own_) own = Own{};
  }

 private:
  static constexpr unsigned kLineClasses = 3;
  static_assert(kSizeClasses[kLineClasses].bytes < kCacheLine &&
                kSizeClasses[kLineClasses + 1].bytes >= kCacheLine);
  struct Own {
    uint32_t level;  ///< blocks that the thread took, less those that it returned: when this many
                     ///< lie here, the next is another thread's
    uint32_t below;  ///< other threads' blocks that were put below its own since it last took some
  };
  Own own_[kLineClasses + 1] = {};
};

}  // namespace loam
