// A buffer that grows by realloc() to many MiB, again and again, is moved and not copied. Each time
// it gets the memory of the time before. So the process is hardly larger than one such buffer, and
// faults its pages in only a few times.
#include "check.h"

#define LAST ((size_t)16 << 20)
#define ROUNDS 30

// Grows each time by 1 / share of the buffer's length.
static void grow(size_t share) {
  size_t bytes = 0;
  char* buffer = NULL;
  while (bytes < LAST) {
    const size_t more = bytes / share + 4096;
    buffer = opaque(realloc(buffer, bytes + more));
    CHECK(buffer != NULL);
    for (size_t i = 0; i < more; i += 1024) buffer[bytes + i] = (char)((bytes + i) >> 10);
    bytes += more;
  }
  for (size_t i = 0, at = 0; at < bytes;) {  // as it was written, piece by piece
    const size_t more = at / share + 4096;
    for (i = 0; i < more; i += 1024) CHECK(buffer[at + i] == (char)((at + i) >> 10));
    at += more;
  }
  free(buffer);
}

int main(void) {
  const long before = proc_number("/proc/self/status", "VmHWM:");
  const long faults_before = minor_faults();
  for (int round = 0; round < ROUNDS; ++round) grow(round % 2 == 0 ? 1 : 8);
  const long grown = proc_number("/proc/self/status", "VmHWM:") - before;
  const long longest = (long)(2 * LAST >> 10);  // by doubling
  if (grown > longest + longest / 4) {
    dprintf(2, "the peak grew by %ld KiB for at most %ld KiB\n", grown, longest);
    return 1;
  }
  const long taken = minor_faults() - faults_before;
  if (taken > 6 * (long)(2 * LAST >> 12)) {
    dprintf(2, "%ld faults for %d buffers of %ld pages\n", taken, ROUNDS, (long)(LAST >> 12));
    return 1;
  }
  return 0;
}
