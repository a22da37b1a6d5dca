// Every byte that malloc_usable_size promises can be written, and blocks never overlap.
#include "check.h"

typedef struct {
  unsigned char* start;
  size_t usable;
  uint64_t seed;
} Block;

static int by_start(const void* left, const void* right) {
  const uintptr_t a = (uintptr_t)((const Block*)left)->start;
  const uintptr_t b = (uintptr_t)((const Block*)right)->start;
  return (a > b) - (a < b);
}

int main(void) {
  enum { kBlocks = 20000 };
  static Block blocks[kBlocks];
  uint64_t seed = 1;
  for (int i = 0; i < kBlocks; ++i) {
    // Sizes spread over the powers of two, so that every class occurs: 1 B to 256 KiB.
    const unsigned shift = (unsigned)(next_random(&seed) % 18);
    const size_t size = (next_random(&seed) & (((size_t)2 << shift) - 1)) + 1;
    const size_t wanted = size > 32768 && i % 20 != 0 ? size % 32768 + 1 : size;
    blocks[i].start = opaque(malloc(wanted));
    CHECK(blocks[i].start != NULL);
    blocks[i].usable = malloc_usable_size(blocks[i].start);
    CHECK(blocks[i].usable >= wanted);
    blocks[i].seed = (uint64_t)i;
    fill_pattern(blocks[i].start, blocks[i].usable, blocks[i].seed);
  }
  for (int i = 0; i < kBlocks; ++i) {
    CHECK(has_pattern(blocks[i].start, blocks[i].usable, blocks[i].seed));
  }
  qsort(blocks, kBlocks, sizeof blocks[0], by_start);
  for (int i = 1; i < kBlocks; ++i) {
    CHECK(blocks[i - 1].start + blocks[i - 1].usable <= blocks[i].start);
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i].start);

  // Null has no size.
  CHECK_EQUAL(malloc_usable_size(NULL), 0);
  return 0;
}
