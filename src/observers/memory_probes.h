// OpenTelemetry's memory probes: a profiler that attaches while the program runs gets a sample of
// blocks, one for 512 KiB of requested bytes on average, and the frees of these blocks (decision
// 82).
//
// While no profiler listens, the fast paths do nothing for the probes. A thread looks at the
// semaphore of allocations, which the system raises for a profiler, in calls that are slow anyway:
// every 256 frees or refills, and with large blocks. When a profiler listens, each thread closes
// its fast paths when it notices. Then every call takes the slow path, which comes here by a detour
// (detours.h).
//
//   era_ is odd while a profiler listens;  a thread's probe_era has its last bits once it knows
//   a sample:  base/poisson.h, by the thread's countdown of bytes
//
// Thread-safe without a lock.
#pragma once

#include <atomic>

#include "base/config.h"
#include "observers/followed_blocks.h"
#include "observers/observed_thread.h"

namespace loam {

class MemoryProbes {
 public:
  constexpr MemoryProbes() = default;

  /// The mean of OpenTelemetry and of other allocators: some ten samples a second of a busy
  /// program.
  static constexpr uint64_t kMeanBytes = uint64_t{512} << 10;

  /// Whether a profiler came or went since the era whose last bits are `seen`.
  [[nodiscard]] LOAM_INLINE bool has_turned(uint8_t seen) const {
    const uint32_t now = era_.load(std::memory_order_relaxed);  // era() reads it again
    return static_cast<uint8_t>(now) != seen || os::allocations_are_probed() != ((now & 1) != 0);
  }
  /// Looks at that semaphore and returns the era, which is odd while a profiler listens. May map
  /// memory.
  [[nodiscard]] uint32_t era();

  /// Call for every block that malloc() and its like hand out while the detour is taken; null is
  /// ignored. `thread`: that of the call; null if it has ended.
  void allocated(const void* block, size_t bytes, ObservedThread* thread);
  /// Call before the block is freed or moves. True if the profiler was told of it.
  bool freed(const void* block);
  /// The block was reported as freed, but could not move. It is reported as allocated again.
  void stays(const void* block, size_t bytes);
  /// A block that stays where it is with another size counts as one that was freed and allocated.
  void resized(const void* block, size_t bytes, ObservedThread* thread) {
    freed(block);
    allocated(block, bytes, thread);
  }

 private:
  /// Bound: in a heap of 16 GiB with one followed block for 512 KiB, all but one block in some
  /// thousand find a place; the others are not followed. The table is 1 MiB, of which only touched
  /// pages get memory.
  static constexpr unsigned kBucketBits = 14;

  LOAM_COLD uint32_t turn(uint32_t before);
  uint32_t settle();
  [[nodiscard]] bool is_sampled(size_t bytes, ObservedThread* thread);
  void report(const void* block, size_t bytes, uint16_t era);

  std::atomic<uint32_t> era_{0};
  enum class Table : uint8_t { kNone, kStarting, kReady };
  std::atomic<Table> table_{Table::kNone};
  FollowedBlocks followed_;
};

extern MemoryProbes memory_probes;

}  // namespace loam
