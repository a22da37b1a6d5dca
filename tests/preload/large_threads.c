// Eight threads that replace large blocks at random, with few megabytes each, reuse the memory that
// the heap has: free runs of one thread serve the others before fresh pages are touched and others
// are given back for them.
#include "check.h"

#include <pthread.h>

#define THREADS 8
#define BLOCKS 8  // of a thread
#define ROUNDS 100000

static void* work(void* argument) {
  uint32_t random = 1 + (uint32_t)(uintptr_t)argument;
  char* blocks[BLOCKS] = {0};
  for (int i = 0; i < ROUNDS; ++i) {
    random = random * 1664525 + 1013904223;
    char** const block = &blocks[(random >> 8) % BLOCKS];
    const size_t bytes = ((size_t)16 << 10) + (random >> 12) % ((size_t)240 << 10);
    free(*block);
    *block = opaque(malloc(bytes));
    CHECK(*block != NULL);
    for (size_t at = 0; at < bytes; at += 4096) (*block)[at] = 1;
  }
  for (int i = 0; i < BLOCKS; ++i) free(blocks[i]);
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  const long before = minor_faults();
  for (uintptr_t t = 0; t < THREADS; ++t)
    CHECK_EQUAL(pthread_create(&threads[t], NULL, work, (void*)t), 0);
  for (int t = 0; t < THREADS; ++t) CHECK_EQUAL(pthread_join(threads[t], NULL), 0);
  const long faults = minor_faults() - before;
  const long live = THREADS * BLOCKS * (136 / 4);  // pages
  if (faults <= 5 * live) return 0;
  dprintf(2, "%ld faults for %ld pages that live\n", faults, live);
  return 1;
}
