// A thread's magazines: per size class a stack of pointers to free blocks. malloc() pops, free()
// pushes; the blocks themselves are never touched.
//
//            base        low            head           high
//             |           |              |              |
//             v           v              v              v
//   slots:   [ p0 | p1 | p2 | ... | pn |    |    |    ]
//
//   base <= low <= head <= high <= base + capacity;   normally high = base + capacity, and low =
//   base, or the middle of what the magazine held when it was last armed (decision 13)
//
// An *armed* magazine has low = high = head, so that the next malloc or free takes the slow path
// once. Two static caches without slots stand for threads that have not started and threads that
// have ended. Their every operation takes the slow path too, so the fast path tests for neither.
//
// Its thread owns a magazine; other threads read head pointers for statistics only. The pointer is
// stored before the head (release), so that a fork()ed child sees consistent copies of other
// threads' magazines.
#pragma once

#include <atomic>
#include <cstring>

#include "cache/magazine_lengths.h"

namespace loam {

/// References to the four words of a class's magazine.
template <class Word>
struct MagazineWords {
  Word& head;
  Word& low;
  Word& high;
  Word& base;

  [[nodiscard]] unsigned held() const { return static_cast<unsigned>(head - base); }
  void arm() const { low = high = head; }
  [[nodiscard]] bool is_armed() const { return low == head && high == head; }
  void set_head(void** to) const { __atomic_store_n(&head, to, __ATOMIC_RELEASE); }
  /// Puts a block on top without a note of the free. pre: there is room
  void put(void* block) const {
    void** const top = head;
    __atomic_store_n(top, block, __ATOMIC_RELAXED);  // others may read the slot
    set_head(top + 1);  // release: pairs with the fork()ed child's copy of this memory
  }
};
using Magazine = MagazineWords<void**>;

// The words of one kind are side by side, and this is the first base class of a cache. So an
// instruction of a fast path addresses a word directly: by the cache's address, eight times the
// class and a constant. If a magazine's four words were together, the address would have to be
// computed from the class first (decision 44).
struct alignas(64) Magazines {
  void** heads_[kMagazineCount] =
      {};  // kMixedClass: blocks of mixed spans. Class 0 has no magazine: null
  void** lows_[kMagazineCount] = {};
  void** highs_[kMagazineCount] = {};
  void** bases_[kMagazineCount] = {};

  [[nodiscard]] Magazine magazine(unsigned size_class) {
    return {heads_[size_class], lows_[size_class], highs_[size_class], bases_[size_class]};
  }
  [[nodiscard]] MagazineWords<void** const> magazine(unsigned size_class) const {
    return {heads_[size_class], lows_[size_class], highs_[size_class], bases_[size_class]};
  }

  /// A block of the class, or null when the slow path must run.
  [[nodiscard]] LOAM_INLINE void* pop(size_t size_class) {
    void** const head = heads_[size_class];
    if (LOAM_UNLIKELY(head == lows_[size_class])) return nullptr;
    void* block = head[-1];
    __atomic_store_n(&heads_[size_class], head - 1,
                     __ATOMIC_RELAXED);  // readers of statistics see some recent value
    // Saves callers the test of the result: a magazine holds no null.
    if (block == nullptr) __builtin_unreachable();
    return block;
  }

  /// The next call of each class is slow.
  void arm_all() {
    const unsigned end = split_classes.end();
    for (unsigned c = 1; c < end; ++c) magazine(c).arm();
  }

  /// The blocks in the class's magazine; a recent number for other threads.
  [[nodiscard]] size_t held_blocks(unsigned size_class) const {
    const auto m = magazine(size_class);
    void** head = __atomic_load_n(&m.head, __ATOMIC_ACQUIRE);
    void** base = __atomic_load_n(&m.base, __ATOMIC_RELAXED);
    if (head == nullptr) return 0;  // between two arrays
    const size_t held = static_cast<size_t>(head - base);
    // The two loads may belong to different arrays.
    return held <= magazine_policy::kMaxCapacity ? held : 0;
  }
  /// True when `block` is in the class's magazine. O(blocks held).
  [[nodiscard]] bool holds(unsigned size_class, const void* block) const {
    // The cache may belong to another thread, which goes on. An array that it has outgrown stays
    // readable, but a base and a head of two arrays are no range.
    const auto m = magazine(size_class);
    void** const base = __atomic_load_n(&m.base, __ATOMIC_ACQUIRE);
    void** const head = __atomic_load_n(&m.head, __ATOMIC_ACQUIRE);
    if (base == nullptr || head < base || head - base > ptrdiff_t{max_capacity(size_class)})
      return false;
    for (void** slot = base; slot < head; ++slot) {
      if (__atomic_load_n(slot, __ATOMIC_RELAXED) == block) return true;
    }
    return false;
  }
  /// Calls visit(blocks, count) for each magazine.
  template <class Visit>
  void visit_held(Visit visit) const {
    for (unsigned c = 1; c < kMagazineCount; ++c) {
      const auto m = magazine(c);
      if (m.head > m.base && m.base != nullptr) visit(m.base, static_cast<size_t>(m.head - m.base));
    }
  }

  /// Passes the blocks at the magazine's bottom to give(blocks, count), at most `at_once` in each
  /// call.
  template <class Give>
  LOAM_INLINE void take_out(unsigned size_class, unsigned count, unsigned at_once, Give give) {
    const Magazine m = magazine(size_class);
    const unsigned held = m.held();
    // The magazine forgets its blocks before the bin gets some, and is empty until the others have
    // moved. A fork() in between loses blocks in the child; any other order would free some blocks
    // twice there.
    m.low = m.base;  // also for a handler of SIGABRT that allocates when a wrong block is given
    m.set_head(m.base);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    for (unsigned given = 0; given < count; given += at_once) {
      give(m.base + given, count - given < at_once ? count - given : at_once);
    }
    if (LOAM_LIKELY(size_class != kMixedClass)) {
      memmove(m.base, m.base + count, (held - count) * sizeof(void*));
    } else {
      // Not memmove(): another thread may read.
      for (size_t i = count; i < held; ++i)
        __atomic_store_n(&m.base[i - count], m.base[i], __ATOMIC_RELAXED);
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    m.set_head(m.base + (held - count));
  }
};

}  // namespace loam
