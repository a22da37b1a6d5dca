// How long a magazine is: of a thread's cache of the default heap (thread_cache.h), and of its
// caches of private heaps (private/private_cache.h). Numbers only; who holds what is theirs to
// count.
//
// A magazine starts with few slots, doubles where it was too short, and ends at so many bytes of
// blocks. Beyond one_way_capacity() it grows only where it was too short in both directions in turn
// (decisions 17 and 62).
#pragma once

#include "base/units.h"

namespace loam::magazine_policy {

// Chosen: 8 pointers cost a class that is used once little; a busy one doubles within a few misses.
inline constexpr unsigned kInitialSlots = 8;
// Chosen: 4 KiB of blocks, but two to eight of them. Never more than max_capacity().
inline constexpr size_t kInitialBytes = 4096;
// A class's magazine holds at most this many bytes of blocks, but kFewSlots always.
inline constexpr size_t kClassBytes = size_t{128} << 10;
// Of blocks smaller than kSmallBlock at most so many: a program's working set of them is often
// larger (decision 55).
inline constexpr size_t kSmallClassBytes = size_t{512} << 10;
inline constexpr size_t kSmallBlock = 2048;
// Chosen: half of them is two spans of the largest classes, which so come and go whole (decision
// 24).
inline constexpr unsigned kFewSlots = 16;
/// Pointers in a magazine at most.
inline constexpr unsigned kMaxCapacity = 2048;
// What a magazine of blocks smaller than kSmallBlock grows to while its thread only takes, or only
// gives: more would not serve it, and would hold more. Slots, and bytes of blocks. Measured: half
// or twice as many bytes (decision 62).
inline constexpr unsigned kOneWayCapacity = 512;
inline constexpr size_t kOneWayBytes = size_t{32} << 10;
static_assert(kOneWayBytes / kSmallBlock >= kInitialSlots);
// Blocks that one refill asks for at most: the bin's lock is held for so long.
inline constexpr unsigned kMaxRefill = 256;
// A magazine that its thread only takes from, and that has the slots that it gets for that in a
// small heap, is refilled by so many, as far as it holds them: each refill waits for what the
// thread wrote to the blocks of the one before. Chosen: twice as many save a tenth as much again,
// and half of a magazine of small blocks is more (decision 37).
inline constexpr unsigned kFillingRefill = 32;
static_assert(kInitialBytes <= kClassBytes && kInitialSlots <= kMaxCapacity);

/// What a magazine was too short for.
enum class Way : uint8_t { kNone, kTake, kGive };

[[nodiscard]] constexpr unsigned initial_capacity(size_t block_bytes) {
  const size_t by_bytes = kInitialBytes / block_bytes;
  return by_bytes < 2               ? 2
         : by_bytes > kInitialSlots ? kInitialSlots
                                    : static_cast<unsigned>(by_bytes);
}

[[nodiscard]] constexpr unsigned max_capacity(size_t block_bytes) {
  const size_t by_bytes =
      (block_bytes < kSmallBlock ? kSmallClassBytes : kClassBytes) / block_bytes;
  return by_bytes < kFewSlots      ? kFewSlots
         : by_bytes > kMaxCapacity ? kMaxCapacity
                                   : static_cast<unsigned>(by_bytes);
}

/// Slots of a magazine that is used one way; `bytes`: what it may hold.
[[nodiscard]] constexpr unsigned one_way_capacity(size_t block_bytes, size_t bytes = kOneWayBytes) {
  if (block_bytes >= kSmallBlock) return max_capacity(block_bytes);
  const size_t by_bytes = bytes / block_bytes;
  return by_bytes > kOneWayCapacity ? kOneWayCapacity : static_cast<unsigned>(by_bytes);
}

/// Where it turned, what went home is taken again, or what was taken comes back: a longer magazine
/// keeps it.
[[nodiscard]] constexpr bool has_turned(Way last, Way now) {
  return last != now && last != Way::kNone;
}

/// What a magazine that was too short should grow to; not more than `capacity` where it should not
/// grow. `one_way_bytes`: what it may hold where it has not turned.
[[nodiscard]] constexpr unsigned next_capacity(size_t block_bytes, unsigned capacity, bool turned,
                                               size_t one_way_bytes = kOneWayBytes) {
  unsigned limit = max_capacity(block_bytes);
  if (!turned) {
    const unsigned one_way = one_way_capacity(block_bytes, one_way_bytes);
    if (limit > one_way) limit = one_way;
  }
  const unsigned next = capacity == 0 ? initial_capacity(block_bytes) : 2u * capacity;
  return next < limit ? next : limit;
}

/// So many blocks end where a cache line does, if the first one begins one. pre: a multiple of 16
[[nodiscard]] constexpr unsigned line_blocks(size_t block_bytes) {
  const size_t power = block_bytes & -block_bytes;
  return block_bytes >= kCacheLine || power >= kCacheLine
             ? 1
             : static_cast<unsigned>(kCacheLine / power);
}

/// Blocks that a refill asks for. The first visit of a class takes a few only: a class that is used
/// once should strand nothing. Blocks smaller than a cache line come by whole lines, so that two
/// threads' fresh blocks share none. `only_takes`: nothing went home since the last refill.
[[nodiscard]] constexpr unsigned refill_count(size_t block_bytes, unsigned capacity, bool first,
                                              bool only_takes = false) {
  unsigned by_capacity = first ? capacity / 4u : capacity / 2u;
  if (only_takes && by_capacity < kFillingRefill && capacity >= one_way_capacity(block_bytes)) {
    by_capacity = capacity < kFillingRefill ? capacity : kFillingRefill;
  }
  const unsigned line = line_blocks(block_bytes);
  const unsigned wanted = by_capacity < line ? line : by_capacity - by_capacity % line;
  return wanted > kMaxRefill ? kMaxRefill : wanted;
}
static_assert(
    refill_count(16 << 10, 16, false) == 8 && refill_count(16 << 10, 16, false, true) == 16 &&
    refill_count(4 << 10, 32, false, true) == 32 && refill_count(4 << 10, 16, false, true) == 8 &&
    refill_count(2 << 10, 64, false, true) == 32 && refill_count(1 << 10, 32, false, true) == 32 &&
    refill_count(1 << 10, 16, false, true) == 8 && refill_count(64, 512, false, true) == 256);
static_assert(line_blocks(16) == 4 && line_blocks(32) == 2 && line_blocks(48) == 4 &&
              line_blocks(80) == 1);

/// Blocks that go home when the magazine overflows: the cold half.
[[nodiscard]] constexpr unsigned overflow_count(unsigned capacity) { return (capacity + 1u) / 2u; }

}  // namespace loam::magazine_policy
