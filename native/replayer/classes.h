// What this process's malloc makes of sizes: the room that a block of each has, and the largest
// smaller request that gets less. Written for `loam advise`, one line of JSON a size.
#pragma once

#include <malloc.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "harness/system.h"

namespace replay {

inline uint64_t room(uint64_t size) {
  void* block = std::malloc(size);
  if (block == nullptr) return 0;
  const uint64_t room = ::malloc_usable_size(block);
  std::free(block);
  return room;
}

// The largest request below `size`, by at most an eighth, that gets less room; 0: none.
inline uint64_t next_below(uint64_t size, uint64_t room_of_size) {
  uint64_t less = size - size / 8, enough = size;
  if (less == size || room(less) >= room_of_size) return 0;
  while (enough - less > 1) {
    const uint64_t middle = less + (enough - less) / 2;
    (room(middle) < room_of_size ? less : enough) = middle;
  }
  return less;
}

// `sizes`: numbers with commas between them.
inline void print_rooms(std::string_view sizes) {
  while (!sizes.empty()) {
    const uint64_t size = std::strtoull(sizes.data(), nullptr, 10);
    const size_t comma = sizes.find(',');
    sizes.remove_prefix(comma == sizes.npos ? sizes.size() : comma + 1);
    const uint64_t own = room(size);
    const uint64_t below = next_below(size, own);
    std::printf("{\"size\":%" PRIu64 ",\"room\":%" PRIu64 ",\"below\":%" PRIu64
                ",\"room_below\":%" PRIu64 "}\n",
                size, own, below, below == 0 ? 0 : room(below));
  }
}

}  // namespace replay
