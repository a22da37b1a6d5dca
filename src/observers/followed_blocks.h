// The addresses of a sample of live blocks: buckets by a hash of the address, eight places each and
// no probing, so that a free looks at one cache line. A block that finds its bucket full is not
// followed.
//
//   place:  | era : 16 | address : 48 |     0: empty
//
// A new start counts a new era. A place of another era is empty as well, so the table need not be
// cleared.
//
// Thread-safe without a lock: a place is claimed by a compare-and-swap and cleared by the thread
// that frees the block.
#pragma once

#include <atomic>

#include "base/units.h"
#include "os/os.h"

namespace loam {

class FollowedBlocks {
 public:
  constexpr FollowedBlocks() = default;

  static constexpr unsigned kPlaces = 8;
  static constexpr size_t kNowhere = SIZE_MAX;

  /// Maps the table and, behind it, `beside` bytes for each place; only touched pages get memory.
  /// Returns the bytes behind the table; null when memory is refused. Call before threads start, or
  /// from one thread only.
  [[nodiscard]] void* start(unsigned bucket_bits, size_t beside) {
    const size_t places = kPlaces << bucket_bits;
    const size_t bytes = round_up(places * (sizeof(uint64_t) + beside), os::granularity());
    void* memory = os::reserve_metadata(bytes, os::granularity());
    if (memory == nullptr) return nullptr;
    if (!os::commit(memory, bytes)) {
      os::release(memory, bytes);
      return nullptr;
    }
    bits_ = bucket_bits;
    bytes_ = bytes;
    places_ = static_cast<std::atomic<uint64_t>*>(memory);  // zeros: all places are empty
    return static_cast<char*>(memory) + places * sizeof(uint64_t);
  }
  [[nodiscard]] size_t bytes() const { return bytes_; }

  /// The place that the block now has; kNowhere if its bucket is full.
  [[nodiscard]] size_t claim(const void* block, uint16_t era) {
    const size_t first = bucket_of(block);
    for (size_t place = first; place < first + kPlaces; ++place) {
      uint64_t there = places_[place].load(std::memory_order_relaxed);
      if (there != 0 && there >> kAddressBits == era) continue;
      // relaxed: only the block's owner looks for its address, and the thread that frees it was
      // handed the block
      if (places_[place].compare_exchange_strong(
              there, word_of(block, era), std::memory_order_relaxed, std::memory_order_relaxed))
        return place;
    }
    return kNowhere;
  }
  [[nodiscard]] size_t find(const void* block, uint16_t era) const {
    const size_t first = bucket_of(block);
    const uint64_t word = word_of(block, era);
    for (size_t place = first; place < first + kPlaces; ++place) {
      if (places_[place].load(std::memory_order_relaxed) == word) return place;
    }
    return kNowhere;
  }
  /// When two threads free one block at once, it is false for one of them.
  [[nodiscard]] bool release(size_t place, const void* block, uint16_t era) {
    uint64_t expected = word_of(block, era);
    return places_[place].compare_exchange_strong(expected, 0, std::memory_order_relaxed,
                                                  std::memory_order_relaxed);
  }

 private:
  friend struct CounterFields;
  static constexpr unsigned kAddressBits = 48;
  [[nodiscard]] static uint64_t word_of(const void* block, uint16_t era) {
    return reinterpret_cast<uintptr_t>(block) | uint64_t{era} << kAddressBits;
  }
  [[nodiscard]] size_t bucket_of(const void* block) const {
    // Fibonacci hashing; blocks are at multiples of 16
    return ((reinterpret_cast<uintptr_t>(block) >> 4) * 0x9e3779b97f4a7c15u >> (64 - bits_)) *
           kPlaces;
  }

  std::atomic<uint64_t>* places_ = nullptr;
  unsigned bits_ = 0;
  size_t bytes_ = 0;
};

}  // namespace loam
