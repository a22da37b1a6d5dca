#include "cache/magazine_arrays.h"

#include "base/check.h"
#include "map/metadata.h"

namespace loam {

unsigned array_slots(unsigned size_class, unsigned growths) {
  const unsigned most = max_capacity(size_class);
  if (has_fixed_array(size_class)) return most;
  const unsigned slots = kFirstArray << growths;
  return slots < most ? slots : most;
}

bool resize_array(unsigned size_class, Magazine m, Tuning& t, RecentFrees& recent,
                  unsigned capacity) {
  if (m.base != nullptr && capacity <= array_slots(size_class, t.array_growths)) {
    t.set_capacity(capacity);
    return true;
  }
  unsigned growths = 0;
  while (array_slots(size_class, growths) < capacity) ++growths;
  void** slots = static_cast<void**>(metadata.allocate(array_bytes(size_class, growths)));
  if (slots == nullptr) return false;
  const unsigned held = m.held();
  LOAM_ASSERT(held <= capacity);
  void** old = m.base;
  const unsigned old_growths = t.array_growths;
  if (held != 0) memcpy(slots, old, held * sizeof(void*));
  // Between two arrays the magazine is empty (head null) for a reader or a fork()ed child that
  // looks now.
  m.set_head(nullptr);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(&m.base, slots, __ATOMIC_RELEASE);
  t.set_capacity(capacity);
  // At once, because such a child frees the array that it finds, by this length. The likeliest
  // place for a fork() is the lock with which this thread frees the old array.
  t.set_growths(growths);
  m.set_head(slots + held);
  // Before the old array's pages may go to another thread, no limit may point into it.
  m.arm();
  if (old != nullptr) {
    recent.forget(old, old + array_slots(size_class, old_growths));  // another thread may get it
    for (size_t i = 0; i < held; ++i) recent.note(slots[i], &slots[i]);
    metadata.free(old, array_bytes(size_class, old_growths));
  }
  return true;
}

void free_array(unsigned size_class, Magazine m, Tuning& t, RecentFrees& recent) {
  void** const old = m.base;
  m.set_head(nullptr);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(&m.base, nullptr, __ATOMIC_RELEASE);
  m.low = m.high = nullptr;
  recent.forget(old, old + array_slots(size_class, t.array_growths));
  metadata.free(old, array_bytes(size_class, t.array_growths));
  t.array_growths = 0;
}

}  // namespace loam
