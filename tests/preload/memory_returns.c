// After the last free, memory comes back: within seconds of light activity to within a few MiB of
// the start, and at once by malloc_trim. Nothing is left to the kernel as LazyFree, which would
// still count as resident. What the caches of idle threads keep is bounded.
#include <pthread.h>
#include <time.h>

#include "check.h"

enum { kBlocks = 300000, kFew = 6 * 1024 /* KiB */, kThreads = 8, kIdleThreadKib = 2560 };
static void* blocks[kBlocks];

static long lazy_free_kib(void) { return proc_number("/proc/self/smaps_rollup", "\nLazyFree:"); }

static size_t size_of(int i) { return 16 + (size_t)(i * 37 % 1000); }

static void fill(void) {
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = opaque(malloc(size_of(i)));
    CHECK(blocks[i] != NULL);
    memset(blocks[i], 1, size_of(i));
  }
}

static void empty(void) {
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
}

// A program at rest still makes a few calls.
static void light_activity(void) {
  const struct timespec span = {0, 10 * 1000000};
  nanosleep(&span, NULL);
  free(opaque(malloc(48)));
}

// Waits until at most `few` KiB above `before` are resident, but not for ever. Returns the tens of
// ms.
static int rest_until(long before, long few, int most) {
  int tens_of_ms = 0;
  for (; resident_kib() - before > few && tens_of_ms < most; ++tens_of_ms) light_activity();
  return tens_of_ms;
}

// Frees nine blocks in ten at random: hardly a span is empty, but most pages are.
static void pages_between_live_blocks_return(void) {
  enum { kLarge = 6000 };
  static void* large[kLarge];
  uint64_t state = 1;
  memset(large, 1, sizeof large);
  malloc_trim(0);
  const long before = resident_kib();
  for (int i = 0; i < kLarge; ++i) {
    const size_t bytes = 4000 + next_random(&state) % 28000;
    large[i] = malloc(bytes);
    CHECK(large[i] != NULL);
    memset(large[i], 1, bytes);
  }
  const long full = resident_kib() - before;
  for (int i = 0; i < kLarge; ++i) {
    if (next_random(&state) % 10 == 0) continue;
    free(large[i]);
    large[i] = NULL;
  }
  const int tens_of_ms = rest_until(before, full / 5, 3000);
  dprintf(2, "nine blocks in ten of %ld KiB: %ld KiB left after %d ms of light activity\n", full,
          resident_kib() - before, tens_of_ms * 10);
  CHECK(resident_kib() - before <= full / 5);
  CHECK_EQUAL(lazy_free_kib(), 0);
  for (int i = 0; i < kLarge; ++i) free(large[i]);
}

static pthread_barrier_t worked, ended;

static void* work_and_idle(void* seed) {
  uint64_t state = (uintptr_t)seed + 1;
  enum { kLive = 2000 };
  void** mine = malloc(kLive * sizeof(void*));
  CHECK(mine != NULL);
  memset(mine, 0, kLive * sizeof(void*));
  for (int i = 0; i < 200000; ++i) {
    void** place = &mine[next_random(&state) % kLive];
    free(*place);
    const size_t bytes = 16 + next_random(&state) % 4000;
    *place = malloc(bytes);
    CHECK(*place != NULL);
    memset(*place, 1, bytes);
  }
  for (int i = 0; i < kLive; ++i) free(mine[i]);
  free(mine);
  pthread_barrier_wait(&worked);
  pthread_barrier_wait(&ended);  // idle until then
  return NULL;
}

static void idle_threads_hold_little(void) {
  pthread_t threads[kThreads];
  CHECK_EQUAL(pthread_barrier_init(&worked, NULL, kThreads + 1), 0);
  CHECK_EQUAL(pthread_barrier_init(&ended, NULL, kThreads + 1), 0);
  malloc_trim(0);
  const long before = resident_kib();
  for (uintptr_t i = 0; i < kThreads; ++i) {
    CHECK_EQUAL(pthread_create(&threads[i], NULL, &work_and_idle, (void*)i), 0);
  }
  pthread_barrier_wait(&worked);
  malloc_trim(0);
  const long idle = resident_kib() - before;
  pthread_barrier_wait(&ended);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  malloc_trim(0);
  const long gone = resident_kib() - before;
  dprintf(
      2,
      "%d idle threads: %ld KiB each, stacks and tables included; once they ended %ld KiB in all\n",
      kThreads, idle / kThreads, gone);
  CHECK(idle <= (long)kThreads * kIdleThreadKib);
  // The C library keeps their stacks.
  CHECK(gone <= 4 * 1024);
}

int main(void) {
  memset(blocks, 1, sizeof blocks);  // the table is not in the heap
  const long before = resident_kib();

  fill();
  const long full = resident_kib();
  CHECK(full - before > 140 * 1024);
  empty();
  CHECK_EQUAL(lazy_free_kib(), 0);
  const int tens_of_ms = rest_until(before, kFew, 1000);
  dprintf(2, "resident: %ld KiB at first, %ld full, %ld after %d ms of light activity\n", before,
          full, resident_kib(), tens_of_ms * 10);
  CHECK(tens_of_ms < 1000);
  CHECK_EQUAL(lazy_free_kib(), 0);

  fill();
  empty();
  CHECK_EQUAL(malloc_trim(0), 1);
  const long trimmed = resident_kib();
  dprintf(2, "and %ld KiB at once by malloc_trim\n", trimmed);
  CHECK(trimmed - before < kFew);
  CHECK_EQUAL(lazy_free_kib(), 0);

  pages_between_live_blocks_return();
  idle_threads_hold_little();
  return 0;
}
