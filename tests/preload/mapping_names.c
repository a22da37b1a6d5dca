/* The heap's mappings have its name if the kernel has names for anonymous memory. Otherwise the
 * heap asks only once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "check.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d61
#define PR_SET_VMA_ANON_NAME 0
#endif

static int is_named(const void* block) {
  char line[512];
  FILE* maps = fopen("/proc/self/maps", "r");
  CHECK(maps != NULL);
  int named = 0;
  while (fgets(line, sizeof line, maps) != NULL) {
    unsigned long begin, end;
    if (sscanf(line, "%lx-%lx", &begin, &end) == 2 && begin <= (unsigned long)block &&
        (unsigned long)block < end)
      named = strstr(line, "[anon:loam]") != NULL;
  }
  fclose(maps);
  return named;
}

int main(void) {
  void* probe = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(probe != MAP_FAILED);
  if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, probe, 4096, "probe") != 0) {
    puts("skipped: this kernel has no names for anonymous memory (CONFIG_ANON_VMA_NAME)");
    return 77;
  }
  void* first = malloc(100);
  static void* blocks[64];
  for (int i = 0; i < 64; ++i) memset(blocks[i] = malloc(1 << 20), 1, 1 << 20);
  void* huge = malloc((size_t)64 << 20);
  CHECK(first != NULL);  // in a range of the start, which has no name
  for (int i = 4; i < 64; ++i) CHECK(is_named(blocks[i]));
  CHECK(is_named(huge));
  huge = realloc(huge, (size_t)200 << 20);
  CHECK(is_named(huge));
  return 0;
}
