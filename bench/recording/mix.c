// The fast mix: frees and allocations of 16 to 527 bytes in turn, in a table of 1,024 blocks.
// Prints nanoseconds an event of the median of many batches. mix BATCHES
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kBlocks = 1024, kPairs = 5000, kMost = 20000 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int count, char** arguments) {
  static void* blocks[kBlocks];
  static double each[kMost];
  const int wanted = count > 1 ? atoi(arguments[1]) : 400;
  const int batches = wanted > 0 && wanted <= kMost ? wanted : kMost;
  uint32_t random = 1;
  for (int batch = 0; batch < batches; ++batch) {
    const double begin = now();
    for (int i = 0; i < kPairs; ++i) {
      random = random * 1664525u + 1013904223u;
      void** block = &blocks[(random >> 10) % kBlocks];
      free(*block);
      *block = malloc(16 + ((random >> 20) & 511));
    }
    each[batch] = (now() - begin) / (2.0 * kPairs);
  }
  qsort(each, (size_t)batches, sizeof *each, by_value);
  double sum = 0;
  for (int batch = 0; batch < batches; ++batch) sum += each[batch];
  printf("median %.2f mean %.2f\n", each[batches / 2], sum / batches);
  return 0;
}
