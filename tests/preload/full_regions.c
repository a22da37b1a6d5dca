// More small blocks than a region of the address space holds (1 GiB), of a class whose spans are
// single pages. Blocks of the last pages are like any others. They are never written to, so that
// this costs no memory except the heap's records.
#include "check.h"

#include <sys/mman.h>

enum { kBytes = 128, kRegions = 2 };
static const size_t kBlocks = ((size_t)kRegions << 30) / kBytes + (1 << 20);

int main(void) {
  void** const blocks = mmap(NULL, kBlocks * sizeof *blocks, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(blocks != MAP_FAILED);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < kBlocks; ++i) {
      blocks[i] = malloc(kBytes);
      CHECK(blocks[i] != NULL);
    }
    for (size_t i = 0; i < kBlocks; ++i) CHECK(malloc_usable_size(blocks[i]) >= kBytes);
    // Frees in order, and scattered: 1,000,003 is prime, and no divisor of the count.
    if (round == 0) {
      for (size_t i = 0; i < kBlocks; ++i) free(blocks[i]);
    } else {
      CHECK(kBlocks % 1000003 != 0);
      for (size_t i = 0, at = 0; i < kBlocks; ++i, at = (at + 1000003) % kBlocks) free(blocks[at]);
    }
  }
  return 0;
}
