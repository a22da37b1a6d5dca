/* A heap that knows its live bytes, for tests that read it from outside: truth SHAPE THREADS KEPT
 * MIB [churn].
 *
 * Each thread fills MIB MiB with blocks of a shape's sizes, and frees all but KEPT percent of them.
 * Then it waits, or with `churn` continues to replace blocks. Commands come on standard input:
 * `live` prints the bytes that the program holds, each block with its header of 8 bytes; `trim`
 * calls malloc_trim(0) and prints how long that took, in microseconds.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_long live;
static int kept, churns;
static long bytes;
static pthread_barrier_t filled;

static void* get(size_t size) {
  void* block = malloc(size);
  if (!block) abort();
  memset(block, 1, size);
  live += (long)malloc_usable_size(block) + 8;
  return block;
}

static void put(void* block) {
  if (block) live -= (long)malloc_usable_size(block) + 8;
  free(block);
}

static size_t draw(unsigned* seed, int shape) {
  unsigned random = (unsigned)rand_r(seed);
  switch (shape) {
    case 0:
      return 16 + random % 500;
    case 1:
      return 100 + random % 8000;
    case 2:
      return 1000 + random % 100000;
    case 3:
      return random % 8 ? 24 + random % 200 : 5000 + random % 60000;
    default:
      return 64;
  }
}

struct thread {
  int shape;
  unsigned seed;
};

static void* fill(void* argument) {
  struct thread* thread = argument;
  unsigned seed = thread->seed;
  long count = bytes / 64 + 1000, used = 0, sum = 0;
  void** all = calloc((size_t)count, sizeof *all);
  live += (long)malloc_usable_size(all) + 8;
  while (used < count && sum < bytes) {
    size_t size = draw(&seed, thread->shape);
    all[used++] = get(size);
    sum += (long)size;
  }
  for (long i = 0; i < used; i++) {
    if (rand_r(&seed) % 100 >= kept) {
      put(all[i]);
      all[i] = NULL;
    }
  }
  pthread_barrier_wait(&filled);
  while (churns) {
    long i = rand_r(&seed) % used;
    put(all[i]);
    all[i] = rand_r(&seed) % 100 < kept ? get(draw(&seed, thread->shape)) : NULL;
  }
  for (;;) pause();
}

int main(int count, char** words) {
  enum { MOST_THREADS = 64 };
  static struct thread threads[MOST_THREADS];
  static char line[64], out[128];
  if (count < 5) return fputs("usage: truth SHAPE THREADS KEPT MIB [churn]\n", stderr), 2;
  int shape = atoi(words[1]), number = atoi(words[2]);
  kept = atoi(words[3]);
  bytes = atol(words[4]) << 20;
  churns = count > 5;
  setvbuf(stdout, out, _IOLBF, sizeof out);
  pthread_barrier_init(&filled, NULL, (unsigned)number + 1);
  for (int i = 0; i < number && i < MOST_THREADS; i++) {
    pthread_t thread;
    threads[i] = (struct thread){shape, (unsigned)i + 7};
    if (pthread_create(&thread, NULL, fill, &threads[i])) abort();
  }
  pthread_barrier_wait(&filled);
  puts("ready");
  while (fgets(line, sizeof line, stdin)) {
    if (!strncmp(line, "live", 4)) printf("%ld\n", (long)live);
    if (!strncmp(line, "trim", 4)) {
      struct timespec begun, ended;
      clock_gettime(CLOCK_MONOTONIC, &begun);
      malloc_trim(0);
      clock_gettime(CLOCK_MONOTONIC, &ended);
      printf("%ld\n",
             (ended.tv_sec - begun.tv_sec) * 1000000 + (ended.tv_nsec - begun.tv_nsec) / 1000);
    }
  }
}
