// Long blocks that realloc() makes a little longer are moved and not copied. Their pages are not
// faulted in again, and the process is never larger than the blocks.
#include <sys/mman.h>

#include "check.h"

#define BLOCKS 6
#define BYTES(i) (((size_t)3 << 20) + (size_t)(i)*1000000)

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static char mark(int block, size_t at) { return (char)(1 + block + (int)(at >> 12)); }

static bool can_move(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void* const from = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return from != MAP_FAILED &&
         mremap(from, page, page, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) != MAP_FAILED;
}

int main(void) {
  if (sysconf(_SC_PAGESIZE) != 4096) SKIP("counts pages of 4 KiB");
  if (!can_move()) SKIP("this system cannot move pages and leave the place mapped");
  char* blocks[BLOCKS];
  size_t live = 0;
  for (int i = 0; i < BLOCKS; ++i) {
    blocks[i] = opaque(malloc(BYTES(i)));
    CHECK(blocks[i] != NULL);
    for (size_t at = 0; at < BYTES(i); at += 1024) blocks[i][at] = mark(i, at);
    live += BYTES(i);
  }
  const long resident = proc_number("/proc/self/status", "VmHWM:");
  const long faults = minor_faults();
  for (int i = 0; i < BLOCKS; ++i) {
    blocks[i] = opaque(realloc(blocks[i], BYTES(i) + 5000));
    CHECK(blocks[i] != NULL);
  }
  const long taken = minor_faults() - faults;
  if (taken > BLOCKS * 8) {
    dprintf(2, "%ld faults to make %d blocks longer by two pages\n", taken, BLOCKS);
    return 1;
  }
  const long grown = proc_number("/proc/self/status", "VmHWM:") - resident;
  // Records, and code that runs for the first time. A copy of a block would be 3 MiB.
  if (grown > 512) {
    dprintf(2, "the peak grew by %ld KiB, with %zu KiB live\n", grown, live >> 10);
    return 1;
  }
  for (int i = 0; i < BLOCKS; ++i) {
    for (size_t at = 0; at < BYTES(i); at += 1024) CHECK_EQUAL(blocks[i][at], mark(i, at));
    memset(blocks[i] + BYTES(i), 1, 5000);
  }
  // The memory that they left serves other blocks.
  for (int i = 0; i < BLOCKS; ++i) {
    char* const other = opaque(malloc(BYTES(i)));
    CHECK(other != NULL);
    memset(other, 2, BYTES(i));
    free(other);
    free(blocks[i]);
  }
  return 0;
}
