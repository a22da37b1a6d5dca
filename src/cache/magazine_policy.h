// The length of a magazine, in a thread's cache of the default heap (thread_cache.h) and in its
// caches of private heaps (private/private_cache.h). The policy has numbers only; the caches count
// what they hold.
//
// A magazine starts with few slots and doubles when it was too short, up to one_way_capacity().
// Beyond that it grows only when it was too short in both directions in turn (decisions 17 and 55).
// A magazine with more slots than usual_capacity() is long: it keeps that length only while the
// heap does not grow (decision 55).
#pragma once

#include "base/units.h"

namespace loam::magazine_policy {

// They cost little in a class that is used once; in a busy class they double within a few misses.
// Measured: half and double change nothing (decision 12).
inline constexpr unsigned kInitialSlots = 8;
// A page of blocks, but at least two and at most eight blocks. Never more than usual_capacity().
inline constexpr size_t kInitialBytes = kPageBytes;
// A class's magazine usually holds at most this many bytes of blocks, but always up to kFewSlots
// blocks.
inline constexpr size_t kClassBytes = size_t{128} << 10;
inline constexpr size_t kSmallBlock = 2048;
// Chosen: half of them is two spans of the largest classes, so such spans come and go whole
// (decision 24).
inline constexpr unsigned kFewSlots = 16;
/// The most pointers in a magazine.
inline constexpr unsigned kMaxCapacity = 2048;
// The limits of a magazine of blocks smaller than kSmallBlock while its thread only takes, or only
// gives: more slots would hold more blocks without serving the thread. In bytes of blocks, of
// which smaller ones count as a cache line. Measured: half or twice as many bytes (decision 55).
inline constexpr size_t kOneWayBytes = size_t{32} << 10;
inline constexpr unsigned kOneWayCapacity = kOneWayBytes / kCacheLine;
static_assert(kOneWayBytes / kSmallBlock >= kInitialSlots && kOneWayBytes <= kClassBytes);
// The fewest blocks in a refill (at most the capacity) of a magazine from which its thread only
// takes, once it has the one_way_capacity() of a small heap. Each refill waits for the thread's
// writes to the blocks of the one before. Chosen: twice as many save a tenth as much again, and
// half of a magazine of small blocks is more (decision 24).
inline constexpr unsigned kFillingRefill = 32;
static_assert(kInitialBytes <= kClassBytes && kInitialSlots <= kMaxCapacity);

/// The operation for which a magazine was too short.
enum class Way : uint8_t { kNone, kTake, kGive };

[[nodiscard]] constexpr unsigned initial_capacity(size_t block_bytes) {
  const size_t by_bytes = kInitialBytes / block_bytes;
  return by_bytes < 2               ? 2
         : by_bytes > kInitialSlots ? kInitialSlots
                                    : static_cast<unsigned>(by_bytes);
}

/// The slots of a magazine that is not long.
[[nodiscard]] constexpr unsigned usual_capacity(size_t block_bytes) {
  const size_t by_bytes = kClassBytes / block_bytes;
  return by_bytes < kFewSlots         ? kFewSlots
         : by_bytes > kOneWayCapacity ? kOneWayCapacity
                                      : static_cast<unsigned>(by_bytes);
}
static_assert(kOneWayCapacity <= kMaxCapacity, "what Tuning and held() count on");

/// Whether a magazine has more than usual_capacity() slots. Without its division.
[[nodiscard]] constexpr bool is_long(size_t block_bytes, unsigned capacity) {
  return capacity > kFewSlots &&
         (capacity > kOneWayCapacity || capacity * block_bytes > kClassBytes);
}
static_assert(!is_long(64, usual_capacity(64)) && is_long(64, usual_capacity(64) + 1) &&
              !is_long(3840, usual_capacity(3840)) && is_long(3840, usual_capacity(3840) + 1) &&
              !is_long(32768, kFewSlots) && is_long(32768, kFewSlots + 1));

/// The slots of a magazine that is used one way; `bytes` is its maximum.
[[nodiscard]] constexpr unsigned one_way_capacity(size_t block_bytes, size_t bytes = kOneWayBytes) {
  if (block_bytes >= kSmallBlock) return usual_capacity(block_bytes);
  const size_t by_bytes = bytes / block_bytes;
  return by_bytes > kOneWayCapacity ? kOneWayCapacity : static_cast<unsigned>(by_bytes);
}

/// When the way has turned, blocks that were returned are taken again, or blocks that were taken
/// come back. A longer magazine keeps such blocks.
[[nodiscard]] constexpr bool has_turned(Way last, Way now) {
  return last != now && last != Way::kNone;
}

/// The next capacity of a magazine that was too short; not more than `capacity` where it should not
/// grow. `one_way_bytes`: its maximum while it has not turned.
[[nodiscard]] constexpr unsigned next_capacity(size_t block_bytes, unsigned capacity, bool turned,
                                               size_t one_way_bytes = kOneWayBytes) {
  const unsigned limit = turned ? kMaxCapacity : one_way_capacity(block_bytes, one_way_bytes);
  const unsigned next = capacity == 0 ? initial_capacity(block_bytes) : 2u * capacity;
  return next < limit ? next : limit;
}

/// The number of blocks that fill whole cache lines, if the first block begins a line. pre: a
/// multiple of 16
[[nodiscard]] constexpr unsigned line_blocks(size_t block_bytes) {
  const size_t power = block_bytes & -block_bytes;
  return block_bytes >= kCacheLine || power >= kCacheLine
             ? 1
             : static_cast<unsigned>(kCacheLine / power);
}

/// The blocks that pass between a magazine and its bin at once: half of the magazine, or of the
/// usual length, which limits the time for which the bin's lock is held. If half of a long magazine
/// left, blocks would go that come back.
[[nodiscard]] constexpr unsigned moved_count(size_t block_bytes, unsigned capacity) {
  const unsigned usual = usual_capacity(block_bytes);
  return (capacity < usual ? capacity : usual) / 2u;
}

/// The blocks that a refill requests. A class's first refill takes only a few, so that a class that
/// is used once strands little. Blocks smaller than a cache line come by whole lines, so that two
/// threads' fresh blocks share no line. `only_takes`: no block was returned since the last refill.
[[nodiscard]] constexpr unsigned refill_count(size_t block_bytes, unsigned capacity, bool first,
                                              bool only_takes = false) {
  unsigned by_capacity = first ? capacity / 4u : moved_count(block_bytes, capacity);
  // Blocks that return fit in a long magazine, so it is not known whether some did.
  const bool fills = only_takes && !is_long(block_bytes, capacity);
  if (fills && by_capacity < kFillingRefill && capacity >= one_way_capacity(block_bytes)) {
    by_capacity = capacity < kFillingRefill ? capacity : kFillingRefill;
  }
  const unsigned line = line_blocks(block_bytes);
  return by_capacity < line ? line : by_capacity - by_capacity % line;
}
static_assert(
    refill_count(16 << 10, 16, false) == 8 && refill_count(16 << 10, 16, false, true) == 16 &&
    refill_count(4 << 10, 32, false, true) == 32 && refill_count(4 << 10, 16, false, true) == 8 &&
    refill_count(2 << 10, 64, false, true) == 32 && refill_count(1 << 10, 32, false, true) == 32 &&
    refill_count(1 << 10, 16, false, true) == 8 && refill_count(64, 512, false, true) == 256);
static_assert(line_blocks(16) == 4 && line_blocks(32) == 2 && line_blocks(48) == 4 &&
              line_blocks(80) == 1);

/// The blocks that leave when the magazine overflows: the coldest.
[[nodiscard]] constexpr unsigned overflow_count(size_t block_bytes, unsigned capacity) {
  return moved_count(block_bytes, capacity + 1u);
}

}  // namespace loam::magazine_policy
