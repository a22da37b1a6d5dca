#include "hardening/free_log.h"

#include "map/own_table.h"
#include "os/os.h"

namespace loam {

bool FreeLog::start() {
  ring_ = static_cast<Entry*>(map_own_table(kEntries * sizeof(Entry)));
  return on();
}

// relaxed: the number only has to differ from those of other threads
LOAM_INLINE uint64_t FreeLog::next() {
  if (!os::is_single_threaded()) return next_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t mine = next_.load(std::memory_order_relaxed);
  next_.store(mine + 1, std::memory_order_relaxed);
  return mine;
}

void FreeLog::add(const void* block, const Free& free) {
  Entry& entry = ring_[next() % kEntries];
  entry.block.store(nullptr, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.caller.store(free.caller, std::memory_order_relaxed);
  const uint64_t bytes = free.bytes & ((uint64_t{1} << kBytesBits) - 1);
  entry.thread_and_bytes.store(uint64_t{free.thread} << kBytesBits | bytes,
                               std::memory_order_relaxed);
  entry.block.store(block, std::memory_order_release);  // pairs with the acquire in find()
}

bool FreeLog::find(const void* block, Free* out) const {
  if (ring_ == nullptr) return false;
  const uint64_t next = next_.load(std::memory_order_relaxed);
  for (uint64_t back = 1; back <= kEntries && back <= next; ++back) {
    const Entry& entry = ring_[(next - back) % kEntries];
    if (entry.block.load(std::memory_order_acquire) != block) continue;
    const uint64_t both = entry.thread_and_bytes.load(std::memory_order_relaxed);
    *out =
        Free{entry.caller.load(std::memory_order_relaxed),
             static_cast<uint32_t>(both >> kBytesBits), both & ((uint64_t{1} << kBytesBits) - 1)};
    // The entry must be the same after it was read.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.block.load(std::memory_order_relaxed) == block) return true;
  }
  return false;
}

}  // namespace loam
