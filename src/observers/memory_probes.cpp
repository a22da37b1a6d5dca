#include "observers/memory_probes.h"

#include "base/poisson.h"
#include "observers/detours.h"
#include "os/os.h"

namespace loam {

constinit MemoryProbes memory_probes;

uint32_t MemoryProbes::era() {
  const uint32_t now = era_.load(std::memory_order_acquire);
  return LOAM_LIKELY(os::allocations_are_probed() == ((now & 1) != 0)) ? now : turn(now);
}

uint32_t MemoryProbes::turn(uint32_t before) {
  if ((before & 1) == 0 && table_.load(std::memory_order_acquire) != Table::kReady) {
    Table none = Table::kNone;
    if (!table_.compare_exchange_strong(none, Table::kStarting, std::memory_order_acquire))
      return before;  // another thread starts the table
    const bool ready = followed_.start(kBucketBits, 0) != nullptr;
    // release: a thread that reads kReady sees the table; pairs with the acquire above
    table_.store(ready ? Table::kReady : Table::kNone, std::memory_order_release);
    if (!ready) return before;
  }
  // seq_cst: see settle(). Pairs with era()'s acquire, as the table's store does
  era_.compare_exchange_strong(before, before + 1);
  return settle();
}

// Two threads may turn it one after the other, and the earlier one set the detour last. Each looks
// again behind what it has set: so who sets it last has seen the last turn. seq_cst, all
uint32_t MemoryProbes::settle() {
  for (uint32_t now = era_.load();;) {
    (now & 1) != 0 ? take_passing_detour(kProbed) : leave_passing_detour(kProbed);
    const uint32_t then = now;
    now = era_.load();
    if (now == then) return now;
  }
}

bool MemoryProbes::is_sampled(size_t bytes, ObservedThread* thread) {
  constexpr double kMean = static_cast<double>(kMeanBytes);
  if (LOAM_UNLIKELY(thread == nullptr)) {
    // Nothing keeps its countdown. The sampling process is memoryless, so a new distance is as
    // good.
    const uint64_t seed = os::now_ns() * 0x9e3779b97f4a7c15u;
    return bytes >= poisson::next_distance(seed ^ seed >> 32, kMean);
  }
  uint64_t& left = thread->bytes_to_probe;
  if (LOAM_UNLIKELY(left == 0)) left = poisson::next_distance(thread->random.bits(), kMean);
  if (LOAM_LIKELY(bytes < left)) {
    left -= bytes;
    return false;
  }
  left = poisson::next_distance(thread->random.bits(), kMean);
  return true;
}

void MemoryProbes::allocated(const void* block, size_t bytes, ObservedThread* thread) {
  const uint32_t now = era_.load(std::memory_order_acquire);
  if (LOAM_UNLIKELY(!os::allocations_are_probed() || (now & 1) == 0)) {
    if ((era() & 1) == 0) static_cast<void>(settle());
    return;
  }
  if (LOAM_UNLIKELY(block == nullptr) || LOAM_LIKELY(!is_sampled(bytes, thread))) return;
  report(block, bytes, static_cast<uint16_t>(now));
}

void MemoryProbes::report(const void* block, size_t bytes, uint16_t era) {
  if (os::frees_are_probed()) static_cast<void>(followed_.claim(block, era));
  os::probe_allocation(block, bytes, poisson::weight(bytes, static_cast<double>(kMeanBytes)));
}

bool MemoryProbes::freed(const void* block) {
  const uint32_t now = era_.load(std::memory_order_acquire);
  if (LOAM_UNLIKELY((now & 1) == 0)) return false;
  const uint16_t era = static_cast<uint16_t>(now);
  const size_t place = followed_.find(block, era);
  if (LOAM_LIKELY(place == FollowedBlocks::kNowhere) || !followed_.release(place, block, era))
    return false;
  os::probe_free(block);
  return true;
}

void MemoryProbes::stays(const void* block, size_t bytes) {
  const uint32_t now = era_.load(std::memory_order_acquire);
  if ((now & 1) != 0) report(block, bytes, static_cast<uint16_t>(now));
}

}  // namespace loam
