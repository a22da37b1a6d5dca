// One thread allocates all the time, so its events share stamps. Another one wakes now and then,
// and the two exchange blocks: each frees a block that the other has just allocated.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "program.h"

enum { kExchanges = 200, kOwn = 3, kSpins = 10000, kPause = 500, kPauses = 40 };

static _Atomic(void*) offered;  // by the thread that wakes
static _Atomic(void*) answer;
static unsigned long laps;

static void* wake(void* unused) {
  for (int i = 0; i < kExchanges; ++i) {
    // Shorter and longer than the drainer's heartbeat.
    usleep((useconds_t)(kPause * (1 + i % kPauses)));
    atomic_store(&offered, malloc(812));
    void* block;
    while ((block = atomic_exchange(&answer, NULL)) == NULL) sched_yield();
    free(block);
  }
  atomic_store(&offered, &offered);
  return unused;
}

int main(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, wake, NULL) == 0);
  for (void* block = NULL; block != &offered; ++laps) {
    for (int i = 0; i < kOwn; ++i) free(malloc(811));
    // Few events, so that no drainer is too slow.
    block = NULL;
    for (int i = 0; i < kSpins && block == NULL; ++i) block = atomic_exchange(&offered, NULL);
    if (block == NULL || block == &offered) continue;
    free(block);
    atomic_store(&answer, malloc(813));
  }
  CHECK(pthread_join(thread, NULL) == 0);
  expect_size(811, kOwn * laps, kOwn * laps);
  expect_size(812, kExchanges, kExchanges);
  expect_size(813, kExchanges, kExchanges);
  return 0;
}
