// All bins of one heap, and the two bulk operations that caches use: take and give.
//
// Thread-safe. A bin's lock is held for one bulk operation only.
#pragma once

#include "small/bin.h"

namespace loam {

class SmallHeap {
 public:
  /// `mapped`: blocks answer class_at(), that is, their free takes the fast path (the default heap).
  constexpr SmallHeap(PageHeap& pages, uint16_t heap, bool mapped)
      : pages_(pages), heap_(heap), mapped_(mapped) {}

  /// Up to `wanted` slots of the class; 0 when memory is refused. pre: 1 <= wanted
  [[nodiscard]] unsigned take(unsigned size_class, void** out, unsigned wanted);

  enum class Wait {
    kNo,   ///< leave the slots in the remote queue rather than wait for the bin
    kYes,
  };
  /// Gives slots of the class back. pre: count <= kMaxGive
  void give(unsigned size_class, void* const* pointers, unsigned count, Wait wait);
  static constexpr unsigned kMaxGive = 512;

  /// Empties remote queues, returns empty spans, purges free pages inside live spans.
  Pages compact();

  [[nodiscard]] BinStats stats(unsigned size_class);
  [[nodiscard]] bool is_valid();

  [[nodiscard]] PageHeap& pages() { return pages_; }
  [[nodiscard]] uint16_t heap() const { return heap_; }

  /// Around fork(): every bin's lock, in class order.
  void lock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void unlock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void reset_locks_after_fork();

 private:
  [[nodiscard]] SizeClass class_byte(unsigned size_class) const {
    return mapped_ ? SizeClass(size_class) : kNoClass;
  }

  Bin bins_[kSizeClassCount];
  PageHeap& pages_;
  uint16_t heap_;
  bool mapped_;
};

/// The bins behind malloc().
extern SmallHeap default_small_heap;

}  // namespace loam
