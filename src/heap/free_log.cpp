#include "heap/free_log.h"

#include "map/own_table.h"

namespace loam {

bool FreeLog::start() {
  ring_ = static_cast<Entry*>(map_own_table(kEntries * sizeof(Entry)));
  return on();
}

void FreeLog::add(const void* block, const void* caller, uint32_t thread) {
  // relaxed: the number only has to differ from other threads'
  Entry& entry = ring_[next_.fetch_add(1, std::memory_order_relaxed) % kEntries];
  entry.block.store(nullptr, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.caller.store(caller, std::memory_order_relaxed);
  entry.thread.store(thread, std::memory_order_relaxed);
  entry.block.store(block, std::memory_order_release);  // pairs with the acquire in find()
}

bool FreeLog::find(const void* block, Free* out) const {
  if (ring_ == nullptr) return false;
  const uint64_t next = next_.load(std::memory_order_relaxed);
  for (uint64_t back = 1; back <= kEntries && back <= next; ++back) {
    const Entry& entry = ring_[(next - back) % kEntries];
    if (entry.block.load(std::memory_order_acquire) != block) continue;
    *out = Free{entry.caller.load(std::memory_order_relaxed), entry.thread.load(std::memory_order_relaxed)};
    // Still the same entry after it was read?
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.block.load(std::memory_order_relaxed) == block) return true;
  }
  return false;
}

}  // namespace loam
