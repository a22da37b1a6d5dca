// What the model knows of a block, and the pattern that its bytes must hold.
//
// A block's pattern follows from its id alone, and no id is used twice. If two blocks overlap, if a
// free block is written to, or if realloc loses or mixes bytes, a word differs from the pattern of
// its block. The difference names the block that the word belongs to.
#ifndef LOAM_TESTS_STRESS_BLOCK_H
#define LOAM_TESTS_STRESS_BLOCK_H

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "random.h"

namespace stress {

// The call that made a block decides how it may be freed: free_sized takes only kPlain,
// free_aligned_sized only kAligned, free and realloc the first three.
enum class Family : uint8_t { kPlain, kAligned, kOther, kNew, kNewArray, kAlignedNew };

constexpr bool freed_by_free(Family family) { return family <= Family::kOther; }

struct Block {
  unsigned char* start = nullptr;
  size_t size = 0;       // requested: decisions depend on it
  size_t filled = 0;     // bytes with the pattern: size, or all usable bytes
  size_t alignment = 0;  // promised
  uint64_t id = 0;
  Family family = Family::kPlain;
};

inline uint64_t pattern_word(uint64_t id, size_t index) { return mix(id + index * kGolden); }

// Blocks above this size have the pattern only at the start of each page and at their end, so that
// giant blocks cost page faults instead of memory bandwidth.
constexpr size_t kWholePattern = size_t{256} << 10;
constexpr size_t kPage = 4096;
constexpr size_t kPerPage = 64;

// Calls visit(offset, length) for each stretch of [from, to) that holds the pattern of a block with
// `filled` bytes. Offsets are multiples of 8.
template <typename Visitor>
void for_each_stretch(size_t filled, Visitor visit) {
  if (filled <= kWholePattern) {
    visit(size_t{0}, filled);
    return;
  }
  const size_t last = (filled - kPerPage) & ~size_t{7};
  for (size_t page = 0; page + kPerPage <= last; page += kPage) visit(page, kPerPage);
  visit(last, filled - last);
}

inline void write_pattern(unsigned char* start, size_t filled, uint64_t id) {
  for_each_stretch(filled, [&](size_t offset, size_t length) {
    size_t done = 0;
    for (; done + 8 <= length; done += 8) {
      const uint64_t word = pattern_word(id, (offset + done) / 8);
      memcpy(start + offset + done, &word, 8);
    }
    const uint64_t word = pattern_word(id, (offset + done) / 8);
    memcpy(start + offset + done, &word, length - done);
  });
}

constexpr size_t kIntact = ~size_t{0};

// The offset of the first byte before `end` that differs from the pattern of a block that was
// filled to `filled`, or kIntact.
inline size_t first_difference(const unsigned char* start, size_t filled, size_t end, uint64_t id) {
  size_t found = kIntact;
  for_each_stretch(filled, [&](size_t offset, size_t length) {
    if (found != kIntact || offset >= end) return;
    if (length > end - offset) length = end - offset;
    for (size_t done = 0; done < length; done += 8) {
      const uint64_t word = pattern_word(id, (offset + done) / 8);
      const size_t bytes = length - done < 8 ? length - done : 8;
      if (memcmp(start + offset + done, &word, bytes) == 0) continue;
      const auto* expected = reinterpret_cast<const unsigned char*>(&word);
      size_t byte = 0;
      while (start[offset + done + byte] == expected[byte]) byte++;
      found = offset + done + byte;
      return;
    }
  });
  return found;
}

}  // namespace stress

#endif
