// Memory that one phase of a program freed serves the next phase, which uses another size. Nine
// blocks in ten are freed at random, and blocks of another size fill the holes. Resident memory
// stays near live memory. With a heap in which free slots serve only their own size, it would end
// at more than twice as much.
#include "check.h"

enum { kLiveBytes = 32 << 20, kLeast = 16, kMost = kLiveBytes / kLeast };
static struct {
  unsigned char* start;
  unsigned bytes;
} blocks[kMost];
static size_t count, live;
static uint64_t state = 1;

static uint64_t below(uint64_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % n;
}

static unsigned char mark(const void* block) { return (unsigned char)((uintptr_t)block >> 4); }

static void fill(unsigned low, unsigned high) {
  while (live < kLiveBytes) {
    const unsigned bytes = low + (unsigned)below(high - low + 1);
    CHECK(count < kMost);
    unsigned char* start = malloc(bytes);
    CHECK(start != NULL);
    CHECK(malloc_usable_size(start) >= bytes);
    memset(start, mark(start), bytes);
    blocks[count].start = start;
    blocks[count++].bytes = bytes;
    live += bytes;
  }
}

static void thin(size_t keep) {
  while (count > keep) {
    const size_t i = (size_t)below(count);
    unsigned char* start = blocks[i].start;
    for (unsigned k = 0; k < blocks[i].bytes; ++k) CHECK_EQUAL(start[k], mark(start));
    live -= blocks[i].bytes;
    free(start);
    blocks[i] = blocks[--count];
  }
}

int main(void) {
  static const unsigned ranges[][2] = {{24, 40},   {104, 152}, {56, 72},
                                       {200, 264}, {360, 488}, {16, 1000}};
  memset(blocks, 1, sizeof blocks);  // resident from the start, so that it does not count
  const long before = resident_kib();
  long peak = 0;
  for (unsigned i = 0; i < 2 * sizeof ranges / sizeof *ranges; ++i) {
    const unsigned* range = ranges[i % (sizeof ranges / sizeof *ranges)];
    fill(range[0], range[1]);
    const long resident = resident_kib() - before;
    dprintf(2, "%3u to %4u bytes: %ld KiB resident, %zu KiB live\n", range[0], range[1], resident,
            live >> 10);
    if (resident > peak) peak = resident;
    thin(count / 10);
  }
  // The limit includes rounding to classes and slack in spans. The phases themselves may cost
  // little more.
  CHECK(peak * 1024 <= (long)kLiveBytes * 17 / 10);
  thin(0);
  malloc_trim(0);
  CHECK(resident_kib() - before < 4 * 1024);
  return 0;
}
