// The common data of the threads in the stress test of heaps: places for heaps, and in each place
// slots for its blocks.
//
// The data are in memory of their own, from mmap, like the model of stress.cpp. A place has many
// users at once, or one exclusive thread, which makes or destroys the heap, or uses an
// unsynchronised heap. No thread waits for a place. So a fork finds each place and each slot either
// whole or left alone.
#ifndef LOAM_TESTS_STRESS_PLACES_H
#define LOAM_TESTS_STRESS_PLACES_H

#include <loam/loam.h>

#include <atomic>
#include <cstdint>

#include "block.h"
#include "random.h"
#include "shared.h"

namespace stress {

constexpr size_t kPlaces = 12, kPlaceSlots = 600;  // place 0 is the default heap's

// A set of block addresses, for the blocks that a walk meets.
class AddressSet {
 public:
  void clear() {
    for (const void*& entry : entries_) entry = nullptr;
  }
  void add(const void* address) {
    size_t at = index(address);
    while (entries_[at] != nullptr) at = (at + 1) % kEntries;
    entries_[at] = address;
  }
  [[nodiscard]] bool has(const void* address) const {
    for (size_t at = index(address); entries_[at] != nullptr; at = (at + 1) % kEntries) {
      if (entries_[at] == address) return true;
    }
    return false;
  }

 private:
  static constexpr size_t kEntries = 2048;
  static_assert(kPlaceSlots * 2 < kEntries, "there must be room to probe");
  static size_t index(const void* address) {
    return mix(reinterpret_cast<uintptr_t>(address)) % kEntries;
  }
  const void* entries_[kEntries] = {};
};

struct Place {
  static constexpr int kExclusive = -1;
  std::atomic<int> users{0};
  loam_heap* heap = nullptr;  // changed by an exclusive user only
  unsigned flags = 0;
  size_t maximum = 0;
  Slot slots[kPlaceSlots];

  [[nodiscard]] bool unsynchronized() const { return (flags & LOAM_HEAP_UNSYNCHRONIZED) != 0; }
  // The bytes behind the requested ones belong to the canary.
  [[nodiscard]] bool fills_usable() const { return (flags & LOAM_HEAP_CANARY) == 0; }
  [[nodiscard]] bool exact() const {
    return (flags & (LOAM_HEAP_EXACT_SIZES | LOAM_HEAP_CANARY)) != 0;
  }

  [[nodiscard]] bool try_share() {
    int now = users.load(std::memory_order_relaxed);
    while (now != kExclusive) {
      // Acquire pairs with the release in end_exclusive(): this thread sees the heap of the place.
      if (users.compare_exchange_weak(now, now + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }
  // Release pairs with the acquire in try_exclusive(): the calls on the heap come before its end.
  void end_share() { users.fetch_sub(1, std::memory_order_release); }
  [[nodiscard]] bool try_exclusive() {
    int nobody = 0;
    return users.compare_exchange_strong(nobody, kExclusive, std::memory_order_acquire);
  }
  void end_exclusive() { users.store(0, std::memory_order_release); }
};

// The requests of a phase of the program. A phase ends when every thread has done its part.
struct Phase {
  const char* name;
  uint64_t operations;         // of each thread
  uint64_t making;             // of 100 choices at an empty slot: a block is made
  uint64_t freeing;            // of 100 choices at a full one: the block is freed
  uint64_t smallest, largest;  // bytes, mostly
  uint64_t ending;             // one in so many operations ends a heap
};

struct HeapsShared {
  uint64_t seed = 0;
  uint64_t live_limit = 0;
  bool forks = true;
  bool glances = true;
  bool in_child = false;  // in a fork's child, which has no other thread
  Phase phase{};
  Place places[kPlaces];
  std::atomic<uint64_t> live_bytes{0};
  std::atomic<uint64_t> operations{0}, forked{0}, created{0}, destroyed{0}, walks{0}, refusals{0};
};

}  // namespace stress

#endif
