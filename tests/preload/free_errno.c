// free does not change errno: for null, small, large and huge blocks, and when the system refuses.
#include <sys/mman.h>

#include "check.h"

int main(void) {
  for (size_t size = 1; size <= (size_t)256 << 20; size *= 4) {
    void* const block = opaque(malloc(size));
    CHECK(block != NULL);
    memset(block, 1, size < 4096 ? size : 4096);
    errno = 7654;
    free(block);
    CHECK_EQUAL(errno, 7654);
  }
  errno = 7655;
  free(NULL);
  CHECK_EQUAL(errno, 7655);

  // Many blocks at once, so that caches overflow and pages go back to the system.
  enum { kBlocks = 100000 };
  static void* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) CHECK((blocks[i] = malloc(700)) != NULL);
  errno = 7656;
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  CHECK_EQUAL(errno, 7656);

  // Uses up the mappings that a process may have, so that the system refuses every request of free.
  const long limit = proc_number("/proc/sys/vm/max_map_count", "");
  if (limit < 0 || limit > 200000) return 0;
  void* large[64];
  for (int i = 0; i < 64; ++i) {
    large[i] = opaque(malloc((size_t)3 << 20));
    CHECK(large[i] != NULL);
    memset(large[i], 1, (size_t)3 << 20);
  }
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* const area = mmap(NULL, (size_t)limit * 2 * page, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(area != MAP_FAILED);
  for (long i = 0; i < limit * 2; i += 2) {
    if (mprotect(area + (size_t)i * page, page, PROT_READ) != 0) break;
  }
  for (int i = 0; i < 64; ++i) {
    errno = 7657;
    free(large[i]);
    CHECK_EQUAL(errno, 7657);
  }
  return 0;
}
