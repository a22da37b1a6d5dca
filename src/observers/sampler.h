// Sampling (LOAM_SAMPLE=N): every call of malloc and free is counted, and on average one in N is
// timed, and its block is followed until it is freed.
//
// While sampling is off, the fast paths do nothing for it. While it is on, every call takes the
// slow path, which comes here, so counts are exact.
//
//   mean N calls from sample to sample, uniform in [1, 2N - 1]: a call is sampled with probability
//   1/N whatever its size
//   live_rounding = N * sum over followed blocks of (slot - requested): an unbiased estimate
//
// A block whose bucket in the table (followed_blocks.h) is full is not followed, and is counted as
// lost. Thread-safe without a lock.
#pragma once

#include <atomic>

#include "observers/followed_blocks.h"
#include "observers/observed_thread.h"

namespace loam {

class Sampler {
 public:
  constexpr Sampler() = default;

  static constexpr uint64_t kMaxRate = 1'000'000'000;

  /// Turns sampling on; once, before threads start. False when memory for the table is refused.
  [[nodiscard]] bool start(uint64_t calls_between_samples);
  [[nodiscard]] LOAM_INLINE bool on() const { return LOAM_UNLIKELY(rate_ != 0); }

  /// Call before a call of the thread. Returns the time, or 0 when the call is not timed. pre: on()
  [[nodiscard]] uint64_t begin(ObservedThread& thread);
  /// Call after it. `hit`: the thread's cache served it.
  void end_allocation(ObservedThread& thread, uint64_t began, bool hit);
  void end_free(ObservedThread& thread, uint64_t began, bool hit);
  /// For a block whose allocation is sampled, and for each block before it is freed.
  void follow(const void* block, size_t block_bytes, size_t bytes);
  void forget(const void* block);
  /// Call when the block stays where it is with another size. pre: on()
  void resize(const void* block, size_t block_bytes, size_t bytes);

  [[nodiscard]] uint64_t rate() const { return rate_; }
  [[nodiscard]] uint64_t live_rounding() const {
    const int64_t sum = live_rounding_.load(std::memory_order_relaxed);
    return sum < 0 ? 0 : static_cast<uint64_t>(sum);
  }
  [[nodiscard]] uint64_t followed() const { return followed_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
  [[nodiscard]] size_t table_bytes() const { return blocks_.bytes(); }

 private:
  friend struct CounterFields;
  static constexpr unsigned kBucketBits =
      16;  // half a million blocks; 6 MiB, of which only touched pages get memory
  static constexpr uint16_t kEra = 0;  // sampling never ends

  uint64_t rate_ = 0;
  FollowedBlocks blocks_;
  uint32_t* roundings_ = nullptr;  // of the blocks, by their places
  std::atomic<int64_t> live_rounding_{
      0};  // may be below 0 for a moment: a free may be counted before its allocation
  std::atomic<uint64_t> followed_{0};
  std::atomic<uint64_t> sampled_{0};
  std::atomic<uint64_t> lost_{0};
};

extern Sampler sampler;

}  // namespace loam
