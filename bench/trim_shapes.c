// Ten heaps with much free memory, for bench/trim. The program makes one, says "ready PID" and then
// looks at the clock all the time: what is missing between two looks is when it stood still.
//   trim_shapes SHAPE MIB
// SIGUSR1: it says "stood LONGEST_NS SUM_NS COUNT RESIDENT_BYTES" of the time since the last
// signal. SIGUSR2: it calls malloc_trim(0), and says "trimmed NS RESIDENT_BYTES". SIGTERM: it
// checks its blocks, and says "whole".
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// A shorter gap between two looks is not counted: the clock's own interrupt takes some.
enum { kLeastGap = 20000 };

struct Block {
  unsigned char* bytes;
  size_t size;
};

// Those that live on. They are not on the heap that is measured.
static struct Block* kept;
static size_t kept_count, kept_room;
static uint64_t seed = 88172645463325252u;
static volatile sig_atomic_t asked;

static uint64_t next(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  return seed ^= seed << 17;
}

static unsigned char mark(const struct Block* block) { return (unsigned char)(block->size * 31); }

static struct Block take(size_t size) {
  struct Block block = {malloc(size), size};
  memset(block.bytes, mark(&block), size);
  return block;
}

static void keep(struct Block block) {
  if (kept_count == kept_room) abort();
  kept[kept_count++] = block;
}

static size_t between(size_t low, size_t high) { return low + next() % (high - low + 1); }

// Blocks of `low` to `high` bytes, of which each `every`th stays. `order`: 0 all are freed behind
// the last one, first to last; 1 at random; 2 the freed ones lie together at the end.
static void fill(size_t bytes, size_t low, size_t high, size_t every, int order) {
  size_t room = bytes / low + 1, count = 0;
  struct Block* all = malloc(room * sizeof *all);
  for (size_t sum = 0; sum < bytes && count < room; sum += all[count++].size) {
    all[count] = take(between(low, high));
  }
  size_t stays = every > 0 ? count / every : 0;
  for (size_t i = count; order == 1 && i > 1; i--) {
    size_t other = next() % i;
    struct Block block = all[i - 1];
    all[i - 1] = all[other];
    all[other] = block;
  }
  for (size_t i = 0; i < count; i++) {
    int lives = order == 2 ? i < stays : every > 0 && i % every == 0;
    if (lives) {
      keep(all[i]);
    } else {
      free(all[i].bytes);
    }
  }
  free(all);
}

static size_t mib;
static pthread_barrier_t done;

static void* in_thread(void* number) {
  (void)number;
  static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
  // An arena for each thread; they fill them one after the other, since `kept` is everyone's.
  free(malloc(1));
  pthread_mutex_lock(&turn);
  fill(mib * (1 << 20) / 8, 1000, 3000, 20, 0);
  pthread_mutex_unlock(&turn);
  pthread_barrier_wait(&done);
  pause();
  return NULL;
}

// Strings that grow, as a parser's do, each between the next ones' parts.
static void grow(size_t bytes) {
  size_t count = bytes / 20000;
  struct Block* all = calloc(count, sizeof *all);
  for (size_t size = 64; size <= 16384; size *= 2) {
    for (size_t i = 0; i < count; i++) {
      all[i].bytes = realloc(all[i].bytes, size);
      all[i].size = size;
      memset(all[i].bytes, mark(&all[i]), size);
    }
  }
  for (size_t i = 0; i < count; i++) {
    if (i % 10 == 0) {
      keep(all[i]);
    } else {
      free(all[i].bytes);
    }
  }
  free(all);
}

// A cache whose entries are replaced at random by larger ones.
static void age(size_t bytes) {
  size_t count = bytes / 6000;
  struct Block* all = calloc(count, sizeof *all);
  for (size_t i = 0; i < count; i++) all[i] = take(between(200, 5000));
  for (size_t turn = 0; turn < 4 * count; turn++) {
    size_t at = next() % count;
    free(all[at].bytes);
    all[at] = take(between(200, 12000));
  }
  for (size_t i = 0; i < count; i++) {
    if (next() % 5 == 0) {
      keep(all[i]);
    } else {
      free(all[i].bytes);
    }
  }
  free(all);
}

static void make(const char* shape) {
  size_t bytes = mib << 20;
  pthread_t thread;
  if (!strcmp(shape, "report")) {
    fill(bytes, 100, 2000, 200, 0);
  } else if (!strcmp(shape, "small")) {
    fill(bytes, 24, 200, 500, 0);
  } else if (!strcmp(shape, "pages")) {
    fill(bytes, 8300, 8300, 2, 0);
  } else if (!strcmp(shape, "random")) {
    fill(bytes, 1100, 30000, 8, 1);
  } else if (!strcmp(shape, "top")) {
    // malloc itself would trim it: one block lies above.
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    fill(bytes, 1000, 100000, 50, 2);
  } else if (!strcmp(shape, "arenas")) {
    pthread_barrier_init(&done, NULL, 9);
    for (size_t i = 0; i < 8; i++) pthread_create(&thread, NULL, in_thread, NULL);
    pthread_barrier_wait(&done);
  } else if (!strcmp(shape, "vectors")) {
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    fill(bytes, 100000, 4000000, 3, 1);
  } else if (!strcmp(shape, "grown")) {
    grow(bytes);
  } else if (!strcmp(shape, "cache")) {
    age(bytes);
  } else if (!strcmp(shape, "buffers")) {
    fill(bytes, 65536, 65536, 2, 0);
  } else {
    fprintf(stderr, "trim_shapes: no shape %s\n", shape);
    exit(2);
  }
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static long resident(void) {
  char text[128] = {0};
  int file = open("/proc/self/statm", O_RDONLY);
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  long all = 0, there = 0;
  if (length <= 0 || sscanf(text, "%ld %ld", &all, &there) != 2) return 0;
  return there * 4096;
}

static void on_signal(int number) { asked = number; }

int main(int count, char** words) {
  if (count != 3) {
    fprintf(stderr, "usage: trim_shapes SHAPE MIB\n");
    return 2;
  }
  mib = strtoul(words[2], NULL, 10);
  static char line[256];
  setvbuf(stdout, line, _IOLBF, sizeof line);
  kept_room = (mib << 20) / 64;
  // Large enough for a mapping of its own.
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  kept = malloc(kept_room * sizeof *kept);
  make(words[1]);
  signal(SIGUSR1, on_signal);
  signal(SIGUSR2, on_signal);
  signal(SIGTERM, on_signal);
  printf("ready %d\n", getpid());
  uint64_t longest = 0, sum = 0, gaps = 0, last = now();
  for (;;) {
    uint64_t here = now(), gap = here - last;
    last = here;
    if (gap >= kLeastGap) {
      gaps++;
      sum += gap;
      longest = gap > longest ? gap : longest;
    }
    int number = asked;
    if (number == 0) continue;
    asked = 0;
    if (number == SIGTERM) break;
    if (number == SIGUSR2) {
      malloc_trim(0);
      uint64_t took = now() - here;
      printf("trimmed %llu %ld\n", (unsigned long long)took, resident());
    } else {
      printf("stood %llu %llu %llu %ld\n", (unsigned long long)longest, (unsigned long long)sum,
             (unsigned long long)gaps, resident());
    }
    longest = sum = gaps = 0;
    last = now();
  }
  for (size_t i = 0; i < kept_count; i++) {
    for (size_t byte = 0; byte < kept[i].size; byte++) {
      if (kept[i].bytes[byte] != mark(&kept[i])) {
        printf("broken: a byte of block %zu\n", i);
        return 1;
      }
    }
  }
  puts("whole");
  return 0;
}
