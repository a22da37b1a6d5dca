// LOAM_HARDEN=sample draws blocks by their bytes, from all places of a program: from ten that
// allocate one after the other and free together, in either order; from sizes in the ratio of their
// bytes; and from a program that frees nothing.
//
// A drawn block has a mapping of its own, outside of the heap's regions of 1 GiB.
#include <pthread.h>

#include "../preload/check.h"

static uintptr_t region;
static bool is_drawn(const void* block) { return (uintptr_t)block >> 30 != region; }

enum { kPlaces = 10 };
static unsigned drawn[kPlaces];

static void rounds(unsigned count, bool backwards) {
  memset(drawn, 0, sizeof drawn);
  for (unsigned r = 0; r < count; ++r) {
    void* blocks[kPlaces];
    for (int i = 0; i < kPlaces; ++i) {
      blocks[i] = opaque(malloc(100));
      drawn[i] += is_drawn(blocks[i]);
    }
    for (int i = 0; i < kPlaces; ++i) free(blocks[backwards ? kPlaces - 1 - i : i]);
  }
}

// About 200 of each place: the standard deviation is 7 %.
static int check_places(const char* what) {
  unsigned sum = 0, wrong = 0;
  for (int i = 0; i < kPlaces; ++i) sum += drawn[i];
  printf("%-24s", what);
  for (int i = 0; i < kPlaces; ++i) {
    printf(" %u", drawn[i]);
    wrong += drawn[i] * kPlaces < sum * 2 / 3 || drawn[i] * kPlaces > sum * 3 / 2;
  }
  printf("\n");
  return sum < 500 || wrong != 0;
}

static void* other_thread(void* wrong) {
  rounds(1000000, true);
  *(int*)wrong = check_places("in another thread");
  return NULL;
}

static int sizes(void) {
  unsigned small = 0, large = 0;
  for (int r = 0; r < 5000000; ++r) {
    void* const a = opaque(malloc(64));
    void* const b = opaque(malloc(512));
    small += is_drawn(a);
    large += is_drawn(b);
    free(a);
    free(b);
  }
  printf("%-24s %u %u\n", "64 and 512 bytes", small, large);
  return small == 0 || large < 5 * small || large > 13 * small;
}

static int growth(void) {
  unsigned count = 0;
  for (int i = 0; i < 1000000; ++i) count += is_drawn(opaque(malloc(48)));
  printf("%-24s %u\n", "without a free", count);
  return count < 100 || count > 400;
}

int main(void) {
  region = (uintptr_t)opaque(malloc(100)) >> 30;
  int wrong = growth();  // first: its blocks are the usual size, so one in 5,120 is drawn
  rounds(1000000, true);
  wrong += check_places("last first");
  rounds(1000000, false);
  wrong += check_places("first first");
  int of_thread = 0;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, other_thread, &of_thread) == 0);
  pthread_join(thread, NULL);
  wrong += of_thread + sizes();
  return wrong != 0;
}
