// The limit on mappings (vm.max_map_count). First, a load with many holes shows how many mappings
// the heap needs. Then every mapping that the system allows is used up, and the heap continues.
// Each request is served or gets null with ENOMEM, contents stay, and free works and keeps errno
// although unmapping may be refused. When there are mappings again, everything is served.
#include <sys/mman.h>

#include "check.h"

enum { kBlocks = 60000, kHuge = 40 };
static unsigned char* blocks[kBlocks];
static unsigned char* huge[kHuge];
static size_t sizes[kBlocks];

static long count_mappings(void) {
  static char text[1 << 16];
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0);
  long lines = 0;
  ssize_t got;
  while ((got = read(file, text, sizeof text)) > 0) {
    for (ssize_t i = 0; i < got; ++i) lines += text[i] == '\n';
  }
  close(file);
  return lines;
}

static uint64_t seed = 88172645463325252ULL;

static int churn(int steps) {
  int refused = 0;
  for (int step = 0; step < steps; ++step) {
    const size_t i = next_random(&seed) % kBlocks;
    if (blocks[i] != NULL)
      CHECK(blocks[i][0] == (unsigned char)i && blocks[i][sizes[i] - 1] == (unsigned char)i);
    errno = EDOM;
    free(blocks[i]);
    CHECK_EQUAL(errno, EDOM);
    const uint64_t random = next_random(&seed);
    sizes[i] = 1 + (random % 50 == 0 ? (random >> 8) % 300000 : (random >> 8) % 3000);
    blocks[i] = malloc(sizes[i]);
    if (blocks[i] == NULL) {
      CHECK_EQUAL(errno, ENOMEM);
      ++refused;
      continue;
    }
    blocks[i][0] = blocks[i][sizes[i] - 1] = (unsigned char)i;
  }
  return refused;
}

// Uses up the rest of the mappings: neighbouring pages of different access cannot share one.
static char* use_up(size_t pages) {
  char* const area =
      mmap(NULL, pages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(area != MAP_FAILED);
  for (size_t page = 1; page < pages; page += 2) {
    if (mprotect(area + page * 4096, 4096, PROT_READ) != 0) {
      CHECK_EQUAL(errno, ENOMEM);
      return area;
    }
  }
  SKIP("the limit on mappings is too high to be reached");
}

int main(void) {
  if (sysconf(_SC_PAGESIZE) != 4096) SKIP("counts pages of 4 KiB");
  const long limit = proc_number("/proc/sys/vm/max_map_count", "");
  if (limit < 0) SKIP("the system tells no limit on mappings");
  if (limit > 200000) SKIP("the limit on mappings is too high to be used up quickly");
  const long at_start = count_mappings();
  CHECK_EQUAL(churn(3 * kBlocks), 0);
  malloc_trim(0);  // Makes holes in every span.
  CHECK_EQUAL(churn(kBlocks), 0);
  const long busy = count_mappings() - at_start;
  dprintf(2, "%ld mappings for %d blocks of up to 300,000 bytes\n", busy, kBlocks);
  CHECK(busy < 200);
  for (int i = 0; i < kHuge; ++i) {
    huge[i] = malloc((size_t)33 << 20);
    CHECK(huge[i] != NULL);
    huge[i][0] = 7;
  }

  const size_t pages = (size_t)limit + 4096;
  char* const area = use_up(pages);
  churn(2 * kBlocks);
  // Frees the middle blocks first. If neighbours share a mapping, returning one needs another
  // mapping.
  for (int i = 1; i < kHuge; i += 2) {
    errno = EDOM;
    CHECK(huge[i][0] == 7);
    free(huge[i]);
    CHECK_EQUAL(errno, EDOM);
    huge[i] = NULL;
  }
  for (int i = 0; i < 20; ++i) {
    errno = 0;
    void* const block = opaque(malloc((size_t)34 << 20));
    CHECK(block != NULL || errno == ENOMEM);
    free(block);
  }
  malloc_trim(0);
  churn(kBlocks);

  CHECK_EQUAL(munmap(area, pages * 4096), 0);
  CHECK_EQUAL(churn(2 * kBlocks), 0);
  for (int i = 0; i < kHuge; ++i) {
    if (huge[i] == NULL) CHECK((huge[i] = malloc((size_t)33 << 20)) != NULL);
    free(huge[i]);
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  return 0;
}
