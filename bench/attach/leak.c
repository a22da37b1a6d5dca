/* A leak beside a churn: leak BYTES-A-SECOND BLOCK ALLOCATIONS-A-SECOND
 *
 * lose_session() loses blocks; serve() keeps 1,000 blocks of mixed sizes and replaces them one by
 * one. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *volatile lost;
static char *kept[1000];

__attribute__((noinline)) void lose_session(size_t block) {
  char *p = malloc(block);
  memset(p, 1, block);
  lost = p;
}

__attribute__((noinline)) void serve(unsigned *seed) {
  *seed = *seed * 1103515245u + 12345u;
  char **place = &kept[(*seed >> 8) % 1000];
  size_t size = 16 + (*seed >> 12) % 2000;
  free(*place);
  *place = malloc(size);
  memset(*place, 1, size);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  double rate = atof(arguments[1]), calls = atof(arguments[3]);
  size_t block = (size_t)atol(arguments[2]);
  unsigned seed = 1;
  double begun = now(), leaked = 0, served = 0;
  for (;;) {
    double passed = now() - begun;
    while (leaked + block <= passed * rate) {
      lose_session(block);
      leaked += block;
    }
    /* What could not be done in time is not made up for. */
    if (served < passed * calls - 100000) served = passed * calls - 100000;
    for (int i = 0; i < 10000 && served < passed * calls; i++, served++) serve(&seed);
    struct timespec pause = {0, 500000};
    if (served >= passed * calls) nanosleep(&pause, NULL);
  }
}
