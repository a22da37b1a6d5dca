// OpenTelemetry's memory probes: a profiler that attaches while the program runs learns of a sample
// of blocks, from 512 KiB to 512 KiB of requested bytes on average, and of their frees (decision
// 82).
//
// Nobody listens: the fast paths know nothing of it. A thread looks at the two semaphores, which
// the system raises for a profiler, where its calls are slow anyway: every 256 frees or refills. So
// does each thread then arm its magazines (thread_cache.h), and every call takes the slow path,
// which comes here by a detour (detours.h).
//
//   era_ is odd while a profiler listens;  cache->probe_era() == era_ once the cache's thread knows
//   a sample:  base/poisson.h, by the thread's countdown of bytes
//
// Thread-safe without a lock.
#pragma once

#include <atomic>

#include "base/config.h"
#include "cache/followed_blocks.h"

namespace loam {

class MemoryProbes {
 public:
  constexpr MemoryProbes() = default;

  /// What OpenTelemetry and other allocators take: some ten samples a second of a busy program.
  static constexpr uint64_t kMeanBytes = uint64_t{512} << 10;

  /// Whether a profiler came or went since the era whose last bits are `seen`.
  [[nodiscard]] LOAM_INLINE bool has_turned(uint8_t seen) const {
    const uint32_t now = era_.load(std::memory_order_relaxed);  // era() reads it again
    return static_cast<uint8_t>(now) != seen || os::allocations_are_probed() != ((now & 1) != 0);
  }
  /// Looks at the semaphores; odd while a profiler listens. May map memory.
  [[nodiscard]] uint32_t era();

  /// Of every block that malloc() and its like hand out while the detour is taken; null is none.
  void allocated(const void* block, size_t bytes);
  /// Before the block is freed, or moves.
  void freed(const void* block);
  /// A block that stays where it is with another size counts as one that was freed and allocated.
  void resized(const void* block, size_t bytes) {
    freed(block);
    allocated(block, bytes);
  }

 private:
  /// Chosen: a block of a heap of 16 GiB, with one followed for 512 KiB, finds a place but for one
  /// in some thousand. 1 MiB, of which what is used gets backed.
  static constexpr unsigned kBucketBits = 14;

  LOAM_COLD uint32_t turn(uint32_t before);
  uint32_t settle();
  [[nodiscard]] bool is_sampled(size_t bytes);

  std::atomic<uint32_t> era_{0};
  enum class Table : uint8_t { kNone, kStarting, kReady };
  std::atomic<Table> table_{Table::kNone};
  FollowedBlocks followed_;
};

extern MemoryProbes memory_probes;

}  // namespace loam
