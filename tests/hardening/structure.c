// Without any option: an overflow, or a write after free, harms the contents of neighbours and
// nothing of the heap's. Blocks of every kind are overrun by garbage up to the whole of their
// neighbour, and freed blocks are overwritten; then every record of the heap still agrees with
// every other (loam_validate), no two blocks overlap, and every block that was no neighbour has its
// content.
#include <loam/loam.h>

#include "../preload/check.h"

enum { kBlocks = 400 };

static const size_t kSizes[] = {1, 16, 24, 48, 100, 256, 1000, 1024, 3000, 8000, 30000, 40000};

static unsigned char* blocks[kBlocks];

static void overwrite(unsigned char* at, size_t bytes, unsigned char value) {
  for (size_t i = 0; i < bytes; ++i) ((volatile unsigned char*)at)[i] = value;
}

static int by_address(const void* left, const void* right) {
  const uintptr_t a = *(const uintptr_t*)left, b = *(const uintptr_t*)right;
  return a < b ? -1 : a > b;
}

// With the heap's bytes in the way a list would be redirected: addresses of our own as garbage too.
static void fill_with_addresses(unsigned char* at, size_t bytes, void* address) {
  for (size_t i = 0; i + sizeof address <= bytes; i += sizeof address)
    memcpy(opaque(at + i), &address, sizeof address);
}

static void try_size(size_t size) {
  static unsigned char target[4096];
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = opaque(malloc(size));
    CHECK(blocks[i] != NULL);
    fill_pattern(blocks[i], size, (uint64_t)i);
  }
  uintptr_t sorted[kBlocks];
  for (int i = 0; i < kBlocks; ++i) sorted[i] = (uintptr_t)blocks[i];
  qsort(sorted, kBlocks, sizeof sorted[0], by_address);

  // Every tenth block in address order runs over its neighbour behind it, if that is one of ours.
  bool harmed[kBlocks] = {false};
  const size_t usable = malloc_usable_size(blocks[0]);
  for (int i = 0; i + 1 < kBlocks; i += 10) {
    if (sorted[i + 1] - sorted[i] != usable) continue;
    overwrite((unsigned char*)sorted[i] + size, usable, (unsigned char)(0xff - i));
    for (int k = 0; k < kBlocks; ++k)
      harmed[k] = harmed[k] || (uintptr_t)blocks[k] == sorted[i + 1];
  }
  CHECK_EQUAL(loam_validate(loam_default(), NULL), LOAM_OK);
  for (int i = 0; i < kBlocks; ++i) {
    CHECK_EQUAL(loam_validate(loam_default(), blocks[i]), LOAM_OK);
    if (!harmed[i]) CHECK(has_pattern(blocks[i], size, (uint64_t)i));
  }

  // Every second block is freed, and then written to: by bytes, and by pointers to memory that is
  // ours.
  for (int i = 0; i < kBlocks; i += 2) free(blocks[i]);
  if (size <= 32768) {
    for (int i = 0; i < kBlocks; i += 2) {
      i % 4 == 0 ? overwrite(blocks[i], usable, 0x41)
                 : fill_with_addresses(blocks[i], usable, target);
    }
  }
  CHECK_EQUAL(loam_validate(loam_default(), NULL), LOAM_OK);
  unsigned char* again[kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    again[i] = opaque(malloc(size));
    CHECK(again[i] != NULL && (again[i] < target || again[i] >= target + sizeof target));
    overwrite(again[i], size, 0x5a);
  }
  for (int i = 1; i < kBlocks; i += 2) {
    if (!harmed[i]) CHECK(has_pattern(blocks[i], size, (uint64_t)i));
  }
  for (int i = 0; i < kBlocks; ++i) free(again[i]);
  for (int i = 1; i < kBlocks; i += 2) free(blocks[i]);
  malloc_trim(0);
  CHECK_EQUAL(loam_validate(loam_default(), NULL), LOAM_OK);
}

int main(void) {
  for (size_t i = 0; i < sizeof kSizes / sizeof kSizes[0]; ++i) try_size(kSizes[i]);
  return 0;
}
