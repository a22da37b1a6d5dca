// Threads hand blocks over through mailboxes. Nearly every block is freed by a thread that did not
// allocate it, and its address is soon used again. handover THREADS BLOCKS_A_THREAD
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "program.h"

enum { kBoxes = 256 };

static _Atomic(void*) boxes[kBoxes];
static unsigned long blocks;

static void* hand_over(void* seed) {
  uint32_t random = (uint32_t)(uintptr_t)seed * 2654435761u + 1;
  for (unsigned long i = 0; i < blocks; ++i) {
    random = random * 1664525u + 1013904223u;
    void* block = malloc(701);
    free(atomic_exchange_explicit(&boxes[(random >> 16) % kBoxes], block, memory_order_acq_rel));
  }
  return NULL;
}

int main(int count, char** arguments) {
  const int threads = count > 1 ? atoi(arguments[1]) : 64;
  blocks = count > 2 ? strtoul(arguments[2], NULL, 10) : 4000;
  pthread_t* all = calloc((size_t)threads, sizeof *all);
  CHECK(all != NULL);
  for (int i = 0; i < threads; ++i)
    CHECK(pthread_create(&all[i], NULL, hand_over, (void*)(uintptr_t)(i + 1)) == 0);
  for (int i = 0; i < threads; ++i) CHECK(pthread_join(all[i], NULL) == 0);
  for (int i = 0; i < kBoxes; ++i) free(atomic_load(&boxes[i]));
  free(all);
  const unsigned long all_blocks = (unsigned long)threads * blocks;
  expect_size(701, all_blocks, all_blocks);
  return 0;
}
