// After large frees, malloc_trim gives the memory back. Resident size falls to nearly the start,
// although live blocks are scattered between the freed ones.
#include "check.h"

enum { kBlocks = 400000, kSize = 500, kKeepEvery = 20000 };
static void* blocks[kBlocks];

int main(void) {
  const long before = resident_kib();
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(kSize);
    CHECK(blocks[i] != NULL);
    memset(blocks[i], 1, kSize);
  }
  const long full = resident_kib();
  CHECK(full - before > (long)kBlocks * kSize / 1024);
  for (int i = 0; i < kBlocks; ++i) {
    if (i % kKeepEvery != 0) free(blocks[i]);
  }
  CHECK_EQUAL(malloc_trim(0), 1);  // 1: something was given back.
  const long after = resident_kib();
  dprintf(2, "resident: %ld KiB at first, %ld full, %ld after malloc_trim\n", before, full, after);
  CHECK(after - before < 8 * 1024);
  for (int i = 0; i < kBlocks; i += kKeepEvery) free(blocks[i]);

  // The purged memory can be used again.
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(kSize);
    CHECK(blocks[i] != NULL);
    memset(blocks[i], 2, kSize);
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  malloc_trim(0);
  CHECK(resident_kib() - before < 8 * 1024);
  return 0;
}
