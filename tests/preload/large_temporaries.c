// A program that makes and frees blocks of many MiB in turn, as numeric programs do with their
// temporaries, does not fault in each block anew. A program that does so only once, or stops, keeps
// no memory.
#include "check.h"

#include <time.h>

#define BYTES ((size_t)64 << 20)
#define ROUNDS 20

static void round_of(size_t bytes) {
  char* block = opaque(malloc(bytes));
  CHECK(block != NULL);
  for (size_t i = 0; i < bytes; i += 4096) block[i] = (char)(i >> 12);
  for (size_t i = 0; i < bytes; i += 4096) CHECK(block[i] == (char)(i >> 12));
  free(block);
}

int main(void) {
  const long start = resident_kib();
  round_of(BYTES);
  CHECK(resident_kib() < start + 4096);  // at once

  const long before = minor_faults();
  for (int i = 0; i < ROUNDS; ++i) round_of(BYTES);
  const long pages = (long)(BYTES >> 12);
  const long taken = minor_faults() - before;
  if (taken > 3 * pages) {
    dprintf(2, "%ld faults for %d blocks of %ld pages\n", taken, ROUNDS, pages);
    return 1;
  }
  // Blocks of other lengths get a part of the kept mapping, or get it extended.
  for (int i = 0; i < ROUNDS; ++i) round_of(BYTES / 4 * (size_t)(3 + i % 3));
  CHECK(minor_faults() - before < 5 * pages);
  CHECK(proc_number("/proc/self/status", "VmHWM:") < start + (long)(BYTES / 4 * 5 >> 10) + 4096);

  // A block of calloc is zero.
  char* zeroed = opaque(calloc(1, BYTES));
  CHECK(zeroed != NULL);
  for (size_t i = 0; i < BYTES; i += 512) CHECK(zeroed[i] == 0);
  free(zeroed);

  // After a second of light use the mapping has gone.
  const struct timespec pause = {0, 10 * 1000 * 1000};
  for (int i = 0; i < 150; ++i) {
    free(opaque(malloc(40000)));
    nanosleep(&pause, NULL);
  }
  const long left = resident_kib() - start;
  if (left > 4096) {
    dprintf(2, "%ld KiB are left\n", left);
    return 1;
  }
  return 0;
}
