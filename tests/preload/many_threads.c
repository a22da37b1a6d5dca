// Ten thousand threads come and go, on the smallest stacks that the system allows. Each leaves
// blocks for main to free. Memory stays level and nothing is stranded, also in a program that took
// all keys before the heap could (many_threads keys).
#include <limits.h>
#include <pthread.h>

#include "check.h"

enum { kThreads = 10000, kAtOnce = 20, kLeft = 16 };

static void* left_behind[kAtOnce][kLeft];

static void* body(void* argument) {
  void** const mine = argument;
  for (int i = 0; i < kLeft; ++i) {
    const size_t size = (size_t)16 << (i % 12);
    mine[i] = malloc(size);
    CHECK(mine[i] != NULL);
    memset(mine[i], i, size < 4096 ? size : 4096);
    void* const own = opaque(calloc(1, size));
    CHECK(own != NULL);
    free(own);
  }
  return NULL;
}

static void run(int threads) {
  pthread_attr_t small;
  pthread_attr_init(&small);
  // The smallest stack is 16 KiB with the GNU C library, of which the thread-local storage of a
  // preloaded library takes a share. musl allows 2 KiB, which is too small for the slow paths of a
  // heap.
  const size_t least = 16 * 1024;
  const size_t stack = (size_t)PTHREAD_STACK_MIN > least ? (size_t)PTHREAD_STACK_MIN : least;
  CHECK_EQUAL(pthread_attr_setstacksize(&small, stack), 0);
  for (int done = 0; done < threads; done += kAtOnce) {
    pthread_t ids[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) {
      CHECK_EQUAL(pthread_create(&ids[i], &small, body, left_behind[i]), 0);
    }
    for (int i = 0; i < kAtOnce; ++i) {
      pthread_join(ids[i], NULL);
      for (int j = 0; j < kLeft; ++j) free(left_behind[i][j]);
    }
  }
  pthread_attr_destroy(&small);
}

int main(int argc, char** argv) {
  pthread_key_t key;
  while (argc == 2 && strcmp(argv[1], "keys") == 0 && pthread_key_create(&key, NULL) == 0) {
  }
  run(500);
  const long early = resident_kib();
  run(kThreads - 500);
  const long late = resident_kib();
  dprintf(2, "resident after 500 threads: %ld KiB, after %d: %ld KiB\n", early, kThreads, late);
  CHECK(late - early < 8 * 1024);
  return 0;
}
