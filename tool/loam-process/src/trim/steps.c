// A program that stops itself before each of its calls of malloc (by a trap), and checks every byte
// of its blocks behind each. Arguments: how many calls, and how many other threads, which sleep.
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kBlocks = 40 };
static unsigned char* blocks[kBlocks];
static size_t sizes[kBlocks];
static unsigned seed = 5;

static unsigned draw(unsigned below) { return (unsigned)rand_r(&seed) % below; }

static void fail(const char* what) {
  printf("broken: %s\n", what);
  fflush(stdout);
  _exit(3);
}

// Every other block is written only in one place of each page: most programs do not write all of
// each block, and then the headers and links of earlier chunks stay inside of it.
static int is_written(int at, size_t byte) {
  return at % 2 == 0 || ((size_t)blocks[at] + byte) % 4096 / 64 == 33;
}

static void fill(int at) {
  for (size_t byte = 0; byte < sizes[at]; byte++) {
    if (is_written(at, byte)) blocks[at][byte] = (unsigned char)(at + 1);
  }
}

static void check(void) {
  for (int at = 0; at < kBlocks; at++) {
    for (size_t byte = 0; blocks[at] != NULL && byte < sizes[at]; byte++) {
      if (is_written(at, byte) && blocks[at][byte] != (unsigned char)(at + 1))
        fail("a byte of a block");
    }
  }
}

// Small ones of threads' caches, of fast bins, of small bins, of large bins, at the end of the
// heap, in mappings of their own.
static size_t size(void) {
  static const size_t kLongest[] = {24, 120, 1000, 1500, 9000, 30000, 30000, 70000, 140000};
  size_t longest = kLongest[draw(sizeof kLongest / sizeof kLongest[0])];
  return longest - draw((unsigned)longest / 2);
}

#define STOP __asm__ volatile("int3" ::: "memory")

static void step(void) {
  int at = (int)draw(kBlocks);
  if (blocks[at] != NULL && draw(5) == 0) {
    size_t old = sizes[at];
    sizes[at] = size();
    STOP;
    unsigned char* moved = realloc(blocks[at], sizes[at]);
    blocks[at] = moved;
    for (size_t byte = 0; byte < old && byte < sizes[at] && at % 2 == 0; byte++) {
      if (moved[byte] != (unsigned char)(at + 1)) fail("a byte of realloc");
    }
    fill(at);
  } else if (blocks[at] != NULL) {
    unsigned char* block = blocks[at];
    blocks[at] = NULL;
    STOP;
    free(block);
  } else {
    sizes[at] = size();
    switch (draw(6)) {
      case 0:
        STOP;
        blocks[at] = calloc(1, sizes[at]);
        for (size_t byte = 0; byte < sizes[at]; byte++) {
          if (blocks[at][byte] != 0) fail("a byte of calloc");
        }
        break;
      case 1: {
        size_t alignment = (size_t)64 << draw(8);
        STOP;
        blocks[at] = memalign(alignment, sizes[at]);
        break;
      }
      default:
        STOP;
        blocks[at] = malloc(sizes[at]);
    }
    fill(at);
  }
  check();
}

// A block on the place of three blocks, the middle one of which was free before. The words of that
// time stand in the block again, as in a program that keeps copies of its memory. Only the lists of
// free chunks tell now.
static unsigned char* copy;
static void* volatile spare;
enum { kPart = 30000 - 8, kWords = 4, kFrom = 4096, kTo = 24576 };

static void place_copy(void) {
  size_t old[kWords + 2];
  unsigned char* parts[4];
  // From here on such a block comes from the thread's cache.
  spare = malloc(24);
  free(spare);
  for (int part = 0; part < 4; part++) {
    STOP;
    parts[part] = malloc(kPart);
  }
  size_t chunk = (size_t)(parts[1] - parts[0]);
  STOP;
  free(parts[1]);
  // A walk in front of this call sees the chunk.
  STOP;
  spare = malloc(24);
  free(spare);
  memcpy(old, parts[1] - 16, sizeof old - 16);
  memcpy(old + kWords, parts[2] - 16, 16);
  STOP;
  free(parts[2]);
  STOP;
  free(parts[0]);
  STOP;
  copy = malloc(3 * chunk - 8);
  if (copy != parts[0]) fail("the place of a block");
  unsigned char* middle = copy + chunk;
  memset(middle + kFrom, 77, kTo - kFrom);
  memcpy(middle - 16, old, sizeof old - 16);
  memcpy(middle + chunk - 16, old + kWords, 16);
  // Two calls more, in front of which a trim is tried.
  for (int call = 0; call < 2; call++) {
    STOP;
    spare = malloc(24);
    free(spare);
  }
  for (size_t byte = kFrom; byte < kTo; byte++) {
    if (middle[byte] != 77) fail("a byte of the copy");
  }
}

static void* sleeper(void* nothing) {
  for (;;) pause();
  return nothing;
}

int main(int count, char** words) {
  int calls = count > 1 ? atoi(words[1]) : 0;
  int threads = count > 2 ? atoi(words[2]) : 0;
  pthread_t other;
  mallopt(M_ARENA_MAX, 1);
  for (int at = 0; at < threads; at++) pthread_create(&other, NULL, sleeper, NULL);
  puts("ready");
  fflush(stdout);
  char byte;
  if (read(0, &byte, 1) != 1) return 1;
  place_copy();
  for (int call = 0; call < calls; call++) step();
  for (int at = 0; at < kBlocks; at++) {
    free(blocks[at]);
    blocks[at] = NULL;
  }
  malloc_trim(0);
  puts("whole");
  fflush(stdout);
  _exit(0);
}
