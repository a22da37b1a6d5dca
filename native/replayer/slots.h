// The table of blocks. A slot holds the address of a live block and the generation of its use, so
// that a thread can wait for exactly the block that it frees.
//
//   slot  63        48 47                          0
//        +------------+-----------------------------+
//        | generation |  address; 0: no block yet   |
//        +------------+-----------------------------+
//
// An allocation waits until the slot is empty and has its generation. A free waits until the slot
// has its generation and an address, and then makes the slot empty, with the next generation. A
// resize waits as a free does, and leaves its block under the next generation. All operations of
// the trace have one order, and each wait is for an earlier one. So no two threads wait for each
// other.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdint>

#include "own.h"

namespace replay {

// Waits for a change that no slot shows: spins, then yields, then sleeps.
class Patience {
 public:
  void wait() {
    ++turns_;
    if (turns_ < 64) return;
    if (turns_ < 256) {
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
        slots_(static_cast<std::atomic<uint64_t>*>(own_memory(count * sizeof(uint64_t), true))),
        bells_(static_cast<Bell*>(own_memory(kBells * sizeof(Bell), true))) {}

  bool has(uint64_t slot) const { return slot < count_; }

  void wait_empty(uint32_t slot, uint64_t generation) {
    // Pairs with the release in `clear`: the free is done.
    wait(slot, [=](uint64_t word) { return word == generation << kShift; });
  }

  void put(uint32_t slot, uint64_t generation, void* block) {
    const auto address = reinterpret_cast<uint64_t>(block);
    if (address >> kShift) lab::fail(lab::kExitFailed, "replay: a block lies above 2^48");
    // Pairs with the acquire in `wait_block`: the block's contents are there.
    slots_[slot].store(generation << kShift | address, std::memory_order_release);
    ring(slot);
  }

  // The block of this generation, once it is there.
  void* wait_block(uint32_t slot, uint64_t generation) {
    // Pairs with the release in `put`.
    const uint64_t word = wait(slot, [=](uint64_t seen) {
      return seen >> kShift == generation && (seen & kAddress) != 0;
    });
    return reinterpret_cast<void*>(word & kAddress);
  }

  void clear(uint32_t slot, uint64_t generation) {
    // Pairs with the acquire in `wait_empty`.
    slots_[slot].store(((generation + 1) & 0xffff) << kShift, std::memory_order_release);
    ring(slot);
  }

 private:
  // Threads that wait for slots of this number, modulo `kBells`. There may be many more threads
  // than cores, so they sleep in the kernel.
  struct alignas(64) Bell {
    std::atomic<uint32_t> rings;
    std::atomic<uint32_t> waiters;
  };
  static constexpr uint32_t kBells = 256;

  template <typename Ready>
  uint64_t wait(uint32_t slot, Ready ready) {
    for (unsigned turn = 0; turn < 80; ++turn) {
      const uint64_t word = slots_[slot].load(std::memory_order_acquire);
      if (ready(word)) return word;
      if (turn > 64) sched_yield();
    }
    Bell& bell = bells_[slot % kBells];
    bell.waiters.fetch_add(1, std::memory_order_seq_cst);
    for (;;) {
      const uint32_t rings = bell.rings.load(std::memory_order_acquire);
      const uint64_t word = slots_[slot].load(std::memory_order_acquire);
      if (ready(word)) {
        bell.waiters.fetch_sub(1, std::memory_order_relaxed);
        return word;
      }
      // `ring` looks for waiters without a fence, because every operation would pay for one. It may
      // miss a waiter that comes at this moment; that waiter looks again after a millisecond.
      const timespec limit{0, 1'000'000};
      syscall(SYS_futex, &bell.rings, FUTEX_WAIT_PRIVATE, rings, &limit, nullptr, 0);
    }
  }

  void ring(uint32_t slot) {
    Bell& bell = bells_[slot % kBells];
    if (bell.waiters.load(std::memory_order_relaxed) == 0) return;
    bell.rings.fetch_add(1, std::memory_order_release);  // pairs with the acquire in `wait`
    syscall(SYS_futex, &bell.rings, FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
  }

  static constexpr unsigned kShift = 48;
  static constexpr uint64_t kAddress = (uint64_t{1} << kShift) - 1;

  uint64_t count_;
  std::atomic<uint64_t>* slots_;
  Bell* bells_;
};

}  // namespace replay
