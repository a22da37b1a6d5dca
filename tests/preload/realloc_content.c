// realloc keeps the common part of the contents over a grid of old and new sizes, both ways.
#include "check.h"

int main(void) {
  const size_t kSizes[] = {1,     15,    16,    17,     31,     33,     64,      100,     127,
                           128,   129,   250,   500,    1000,   1024,   2000,    4000,    4096,
                           5000,  8192,  12000, 16384,  20000,  32767,  32768,   32769,   50000,
                           65536, 65504, 99999, 131072, 262144, 524288, 1 << 20, 3 << 20, 9 << 20};
  enum { kCount = sizeof kSizes / sizeof kSizes[0] };
  for (int from = 0; from < kCount; ++from) {
    for (int to = 0; to < kCount; ++to) {
      const size_t common = kSizes[from] < kSizes[to] ? kSizes[from] : kSizes[to];
      // The largest blocks are checked only at their ends, because the middle of 9 MiB shows
      // nothing new.
      const size_t edge = common < 5000 ? common : 5000;
      unsigned char* block = opaque(malloc(kSizes[from]));
      CHECK(block != NULL);
      fill_pattern(block, edge, 3);
      fill_pattern(block + common - edge, edge, 4);
      unsigned char* const neighbour = opaque(malloc(kSizes[from]));
      CHECK(neighbour != NULL);
      neighbour[0] = 0x77;
      neighbour[kSizes[from] - 1] = 0x77;

      block = opaque(realloc(block, kSizes[to]));
      CHECK(block != NULL);
      CHECK(malloc_usable_size(block) >= kSizes[to]);
      if (common == edge) {
        CHECK(has_pattern(block, edge, 4));
      } else {
        CHECK(has_pattern(block, edge < common - edge ? edge : common - edge, 3));
        CHECK(has_pattern(block + common - edge, edge, 4));
      }
      block[kSizes[to] - 1] = 1;
      CHECK(neighbour[0] == 0x77 && neighbour[kSizes[from] - 1] == 0x77);
      free(block);
      free(neighbour);
    }
  }

  // A vector that grows by a half and shrinks again, beside a second one that is in its way.
  for (int round = 0; round < 20; ++round) {
    size_t size = 8;
    unsigned char* grown = opaque(malloc(size));
    unsigned char* obstacle = opaque(malloc(24));
    CHECK(grown != NULL && obstacle != NULL);
    fill_pattern(grown, size, 9);
    while (size < (size_t)3 << 20) {
      const size_t old = size;
      size += size / 2 + 1;
      grown = opaque(realloc(grown, size));
      CHECK(grown != NULL);
      CHECK(has_pattern(grown, old < 3000 ? old : 3000, 9));
      if (old < 3000) fill_pattern(grown, size < 3000 ? size : 3000, 9);
      free(obstacle);
      obstacle = opaque(malloc(size % 40000));
    }
    while (size > 10) {
      size -= size / 3 + 1;
      grown = opaque(realloc(grown, size));
      CHECK(grown != NULL && has_pattern(grown, size < 3000 ? size : 3000, 9));
    }
    free(grown);
    free(obstacle);
  }
  return 0;
}
