// calloc gives zeros at every size, also from memory that was dirty just before.
#include "check.h"

static bool all_zero(const unsigned char* block, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (block[i] != 0) return false;
  }
  return true;
}

int main(void) {
  enum { kAtOnce = 40 };
  void* blocks[kAtOnce];
  for (size_t size = 1; size <= (size_t)8 << 20; size += 1 + size / 9) {
    const int count = size < 100000 ? kAtOnce : 3;
    for (int i = 0; i < count; ++i) {
      blocks[i] = opaque(malloc(size));
      CHECK(blocks[i] != NULL);
      memset(blocks[i], 0xFF, malloc_usable_size(blocks[i]));
    }
    for (int i = 0; i < count; ++i) free(blocks[i]);
    for (int i = 0; i < count; ++i) {
      blocks[i] = opaque(i % 2 == 0 ? calloc(size, 1) : calloc(1, size));
      CHECK(blocks[i] != NULL);
      CHECK(all_zero(blocks[i], size));
      memset(blocks[i], 0xEE, size);
    }
    for (int i = 0; i < count; ++i) free(blocks[i]);
  }

  // Large memory that was purged and used again, and a realloc that grew over it.
  for (int round = 0; round < 5; ++round) {
    const size_t size = (size_t)64 << 20;
    unsigned char* block = opaque(calloc(1, size));
    CHECK(block != NULL && all_zero(block, size));
    memset(block, 0xAA, size);
    free(block);
  }
  return 0;
}
