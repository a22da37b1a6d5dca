// A request for zero bytes gives a pointer that is unique and can be freed, from every entry point.
#include "check.h"

static int by_address(const void* left, const void* right) {
  const uintptr_t a = *(const uintptr_t*)left;
  const uintptr_t b = *(const uintptr_t*)right;
  return (a > b) - (a < b);
}

static void* from_posix_memalign(void) {
  void* block = NULL;
  CHECK_EQUAL(posix_memalign(&block, 64, 0), 0);
  return block;
}

int main(void) {
  enum { kRounds = 500, kKinds = 9 };
  static void* blocks[kRounds * kKinds];
  size_t count = 0;
  const size_t zero = opaque_size(0);
  for (int round = 0; round < kRounds; ++round) {
    blocks[count++] = opaque(malloc(zero));
    blocks[count++] = opaque(calloc(zero, 10));
    blocks[count++] = opaque(calloc(10, zero));
    blocks[count++] = opaque(realloc(NULL, zero));
    blocks[count++] = opaque(reallocarray(NULL, zero, 8));
    blocks[count++] = opaque(memalign(32, zero));
    blocks[count++] = opaque(aligned_alloc(128, zero));
    blocks[count++] = opaque(valloc(zero));
    blocks[count++] = from_posix_memalign();
  }
  for (size_t i = 0; i < count; ++i) CHECK(blocks[i] != NULL);
  qsort(blocks, count, sizeof blocks[0], by_address);
  for (size_t i = 1; i < count; ++i) CHECK(blocks[i - 1] != blocks[i]);
  for (size_t i = 0; i < count; ++i) free(blocks[i]);

  // realloc to zero bytes frees and returns null, as glibc's does; programs on Linux rely on both.
  for (int round = 0; round < 100000; ++round) {
    void* const block = opaque(malloc(5000));
    CHECK(block != NULL);
    memset(block, 1, 5000);
    CHECK(realloc(block, zero) == NULL);
  }
  CHECK(resident_kib() < 128 * 1024);
  return 0;
}
