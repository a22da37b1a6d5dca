// The table of blocks: a slot holds the address of a live block and the generation of its use, so that a thread can
// wait for exactly the block that it is to free.
//
//   slot  63        48 47                          0
//        +------------+-----------------------------+
//        | generation |  address; 0: no block yet   |
//        +------------+-----------------------------+
//
// An allocation waits until the slot is empty and has its generation, a free until the slot has its generation and
// an address; then it makes the slot empty, with the next generation. Each wait is for an operation that comes
// earlier in the trace's one order, so no two threads wait for each other.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "own.h"

namespace replay {

// Spins, then yields, then sleeps: there may be many more threads than cores.
class Patience {
 public:
  void wait() {
    ++turns_;
    if (turns_ < 64) return;
    if (turns_ < 512) {
      sched_yield();
      return;
    }
    timespec t{0, 50'000};
    nanosleep(&t, nullptr);
  }

 private:
  unsigned turns_ = 0;
};

class Slots {
 public:
  explicit Slots(uint64_t count)
      : count_(count),
        slots_(static_cast<std::atomic<uint64_t>*>(own_memory(count * sizeof(uint64_t), true))) {}

  bool has(uint64_t slot) const { return slot < count_; }

  void wait_empty(uint32_t slot, uint64_t generation) {
    // Pairs with the release in `take`: what was freed is freed.
    for (Patience p; slots_[slot].load(std::memory_order_acquire) != generation << kShift;) p.wait();
  }

  void put(uint32_t slot, uint64_t generation, void* block) {
    const auto address = reinterpret_cast<uint64_t>(block);
    if (address >> kShift) lab::fail(lab::kExitFailed, "replay: a block lies above 2^48");
    // Pairs with the acquire in `wait_block`: the block's contents are there.
    slots_[slot].store(generation << kShift | address, std::memory_order_release);
  }

  // The block of this generation, once it is there.
  void* wait_block(uint32_t slot, uint64_t generation) {
    for (Patience p;;) {
      // Pairs with the release in `put`.
      const uint64_t word = slots_[slot].load(std::memory_order_acquire);
      if (word >> kShift == generation && (word & kAddress) != 0) {
        return reinterpret_cast<void*>(word & kAddress);
      }
      p.wait();
    }
  }

  void clear(uint32_t slot, uint64_t generation) {
    // Pairs with the acquire in `wait_empty`.
    slots_[slot].store(((generation + 1) & 0xffff) << kShift, std::memory_order_release);
  }

 private:
  static constexpr unsigned kShift = 48;
  static constexpr uint64_t kAddress = (uint64_t{1} << kShift) - 1;

  uint64_t count_;
  std::atomic<uint64_t>* slots_;
};

}  // namespace replay
