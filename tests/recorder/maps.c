// A program with memory of its own beside the heap and between its parts: mapped, moved, unmapped.
// It also asks its allocator to give memory back.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "program.h"

enum { kPool = 1 << 20, kPools = 64, kBlock = 3 << 20, kGrown = 5 << 20 };

static void* map(size_t bytes) {
  void* p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED);
  memset(p, 1, bytes);
  return p;
}

// maps [MILLISECONDS]: pauses this long while all of the memory exists.
int main(int argc, char** argv) {
  void* pools[kPools];
  void* blocks[kPools / 4];
  for (int i = 0; i < kPools; ++i) {
    pools[i] = map(kPool);
    if (i % 4 == 0) {
      blocks[i / 4] = malloc(kBlock);
      CHECK(blocks[i / 4] != NULL);
      memset(blocks[i / 4], 1, kBlock);
    }
  }
  if (argc > 1) usleep((unsigned)atoi(argv[1]) * 1000u);
  // One mapping moves and becomes larger. Another one is not private memory, so it is no event.
  pools[0] = mremap(pools[0], kPool, kGrown, MREMAP_MAYMOVE);
  CHECK(pools[0] != MAP_FAILED);
  void* shared = mmap(NULL, kPool * 2, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  CHECK(munmap(shared, kPool * 2) == 0);
  for (int i = 1; i < kPools; ++i) CHECK(munmap(pools[i], kPool) == 0);
  CHECK(munmap(pools[0], kGrown) == 0);
  for (int i = 0; i < kPools / 4; ++i) free(blocks[i]);
  malloc_trim(12345);
  expect_size(kBlock, kPools / 4, kPools / 4);
  printf("expect mapped %d %d\n", kPool, kPools);
  printf("expect mapped %d 1\n", kGrown);
  printf("expect unmapped %d %d\n", kPool, kPools);
  printf("expect unmapped %d 1\n", kGrown);
  printf("expect mapped %d 0\n", kBlock);
  printf("expect trims 12345 1\n");
  return 0;
}
