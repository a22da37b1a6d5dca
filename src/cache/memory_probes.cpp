#include "cache/memory_probes.h"

#include "base/poisson.h"
#include "cache/detours.h"
#include "cache/thread_cache.h"
#include "os/os.h"

namespace loam {

constinit MemoryProbes memory_probes;

uint32_t MemoryProbes::era() {
  const uint32_t now = era_.load(std::memory_order_acquire);
  return LOAM_LIKELY(os::allocations_are_probed() == ((now & 1) != 0)) ? now : turn(now);
}

// Two threads may turn the era one after the other, and the earlier one may set the detour last.
// Then allocated() finds that no profiler listens, and sets the detour again.
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
  // release: pairs with era()'s acquire, as the table's does
  era_.compare_exchange_strong(before, before + 1, std::memory_order_release);
  const uint32_t now = era_.load(std::memory_order_acquire);
  (now & 1) != 0 ? take_passing_detour(kProbed) : leave_passing_detour(kProbed);
  return now;
}

bool MemoryProbes::is_sampled(size_t bytes) {
  constexpr double kMean = static_cast<double>(kMeanBytes);
  ThreadCache* const cache = current_cache;
  if (LOAM_UNLIKELY(cache->state() != ThreadCache::State::kLive)) {
    // A thread that has ended keeps no countdown. The sampling process is memoryless, so a new
    // distance is as good.
    const uint64_t seed = os::now_ns() * 0x9e3779b97f4a7c15u;
    return bytes >= poisson::next_distance(seed ^ seed >> 32, kMean);
  }
  uint64_t& left = cache->bytes_to_probe;
  if (LOAM_UNLIKELY(left == 0)) left = poisson::next_distance(cache->random_bits(), kMean);
  if (LOAM_LIKELY(bytes < left)) {
    left -= bytes;
    return false;
  }
  left = poisson::next_distance(cache->random_bits(), kMean);
  return true;
}

void MemoryProbes::allocated(const void* block, size_t bytes) {
  const uint32_t now = era_.load(std::memory_order_acquire);
  if (LOAM_UNLIKELY(!os::allocations_are_probed() || (now & 1) == 0)) {
    if ((era() & 1) == 0) leave_passing_detour(kProbed);
    return;
  }
  if (LOAM_UNLIKELY(block == nullptr) || LOAM_LIKELY(!is_sampled(bytes))) return;
  if (os::frees_are_probed()) static_cast<void>(followed_.claim(block, static_cast<uint16_t>(now)));
  os::probe_allocation(block, bytes, poisson::weight(bytes, static_cast<double>(kMeanBytes)));
}

void MemoryProbes::freed(const void* block) {
  const uint32_t now = era_.load(std::memory_order_acquire);
  if (LOAM_UNLIKELY((now & 1) == 0)) return;
  const uint16_t era = static_cast<uint16_t>(now);
  const size_t place = followed_.find(block, era);
  if (LOAM_LIKELY(place == FollowedBlocks::kNowhere) || !followed_.release(place, block, era))
    return;
  os::probe_free(block);
}

}  // namespace loam
