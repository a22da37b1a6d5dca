// The calls of the allocation family that a block can be made and freed by.
#ifndef LOAM_TESTS_STRESS_CALLS_H
#define LOAM_TESTS_STRESS_CALLS_H

#include <cstddef>
#include <cstdint>

#include "block.h"

namespace stress {

enum class Kind : uint8_t {
  kMalloc,
  kCalloc,
  kRealloc,
  kReallocarray,
  kAlignedAlloc,
  kPosixMemalign,
  kMemalign,
  kValloc,
  kPvalloc,
  kStrdup,
  kNew,
  kNewArray,
  kNothrowNew,
  kAlignedNew,
};

struct Call {
  Kind kind;
  const char* name;
  Family family;
  bool aligned;     // takes an alignment
  uint64_t weight;  // of 100
};

// The call for a random number below 100.
Call pick_call(uint64_t number);

constexpr size_t kLongestString = 2'000;

// The alignment that any block of that size has: enough for each type that fits into it.
constexpr size_t natural_alignment(size_t size) {
  size_t alignment = 1;
  while (alignment < alignof(max_align_t) && alignment * 2 <= size) alignment *= 2;
  return alignment;
}

// Makes a block of block.size bytes at block.alignment and stores its start. The result is 0, or
// the error: errno's, or ENOMEM for an operator new that failed.
int make_block(Kind kind, Block& block);

// Frees a block in one of the ways that its family allows; `choice` is any number.
void free_block(const Block& block, uint64_t choice);

}  // namespace stress

#endif
