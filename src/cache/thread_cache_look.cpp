// The view of a thread's cache from outside: its counts, and whether it is valid.
#include "cache/thread_cache.h"

namespace loam {

size_t ThreadCache::held_blocks(unsigned size_class) const {
  const auto m = magazine(size_class);
  void** head = __atomic_load_n(&m.head, __ATOMIC_ACQUIRE);
  void** base = __atomic_load_n(&m.base, __ATOMIC_RELAXED);
  if (head == nullptr) return 0;  // between two arrays
  const size_t held = static_cast<size_t>(head - base);
  return held <= kMaxCapacity ? held : 0;  // the two loads may belong to different arrays
}

void ThreadCache::count_mixed(uint32_t counts[kSizeClassCount]) const {
  const size_t held = held_blocks(kMixedClass);
  void** slots = __atomic_load_n(&bases_[kMixedClass], __ATOMIC_RELAXED);
  if (held == 0) return;
  MixedHeap& mixed = default_small_heap.mixed();
  mixed.lock_all();
  for (size_t i = 0; i < held; ++i) {
    // Another thread's slot may be stale by now; block_bytes_locked() accepts any value.
    const void* block = __atomic_load_n(&slots[i], __ATOMIC_RELAXED);
    const size_t bytes = MixedHeap::block_bytes_locked(reinterpret_cast<uintptr_t>(block));
    if (bytes != 0) ++counts[class_for(bytes)];
  }
  mixed.unlock_all();
}

bool ThreadCache::is_valid() const {
  if (!runs_.is_valid()) return false;
  for (unsigned c = 0; c < kMagazineCount; ++c) {
    const auto m = magazine(c);
    const Tuning& t = tuning_[c];
    if (m.head < m.base || m.head > m.base + t.capacity || m.low < m.base || m.low > m.head)
      return false;
    if (m.high < m.head || m.high > m.base + t.capacity) return false;
    for (void** slot = m.base; slot < m.head; ++slot) {
      // A block's span may have become mixed while it waited here.
      if (class_at(*slot) != c && class_at(*slot) != kMixedClass) return false;
    }
  }
  return true;
}

}  // namespace loam
