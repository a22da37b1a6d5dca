// A buffer that grows by doubling, as a vector does, leaves no memory behind. At its peak the
// process is hardly larger than the buffer, because its older copies are free before the rest of it
// is written to.
#include "check.h"

#define FIRST ((size_t)1 << 20)
#define LAST ((size_t)128 << 20)

static void fill(char* buffer, size_t from, size_t to) {
  for (size_t i = from; i < to; i += 1024) buffer[i] = (char)i;
}

int main(void) {
  const long before = proc_number("/proc/self/status", "VmHWM:");
  size_t bytes = FIRST;
  char* buffer = opaque(malloc(bytes));
  CHECK(buffer != NULL);
  fill(buffer, 0, bytes);
  while (bytes < LAST) {
    char* const longer = opaque(malloc(2 * bytes));
    CHECK(longer != NULL);
    memcpy(longer, buffer, bytes);
    free(buffer);
    buffer = longer;
    fill(buffer, bytes, 2 * bytes);
    bytes *= 2;
  }
  const long grown = proc_number("/proc/self/status", "VmHWM:") - before;
  const long needed = (long)(LAST >> 10);
  if (grown > needed + needed / 8) {
    dprintf(2, "the peak grew by %ld KiB for %ld KiB\n", grown, needed);
    return 1;
  }
  free(buffer);
  return 0;
}
