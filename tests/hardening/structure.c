// Without any option an overflow, or a write after free, damages the contents of neighbours, but no
// data of the heap. The test overruns blocks of every kind by garbage, up to the whole of their
// neighbour, and overwrites freed blocks. Then all records of the heap must still agree
// (loam_validate), no two blocks may overlap, and every block that is no neighbour must have its
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

// Garbage as an attacker would write to redirect a list of the heap: addresses of our own memory.
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

  // Every tenth block in address order overruns the neighbour behind it, if that is a block of the
  // test.
  bool harmed[kBlocks] = {false};
  for (int i = 0; i + 1 < kBlocks; i += 10) {
    const size_t usable = malloc_usable_size((void*)sorted[i]);
    if (sorted[i + 1] - sorted[i] != usable || malloc_usable_size((void*)sorted[i + 1]) != usable)
      continue;
    overwrite((unsigned char*)sorted[i] + size, usable, (unsigned char)(0xff - i));
    for (int k = 0; k < kBlocks; ++k)
      harmed[k] = harmed[k] || (uintptr_t)blocks[k] == sorted[i + 1];
  }
  CHECK_EQUAL(loam_validate(loam_default(), NULL), LOAM_OK);
  for (int i = 0; i < kBlocks; ++i) {
    CHECK_EQUAL(loam_validate(loam_default(), blocks[i]), LOAM_OK);
    if (!harmed[i]) CHECK(has_pattern(blocks[i], size, (uint64_t)i));
  }

  // Every second block is freed and then written to: by bytes, and by pointers to memory of the
  // test.
  size_t usable_bytes[kBlocks];  // the first blocks of a size may have larger slots
  for (int i = 0; i < kBlocks; ++i) usable_bytes[i] = malloc_usable_size(blocks[i]);
  for (int i = 0; i < kBlocks; i += 2) free(blocks[i]);
  if (size <= 32768) {
    for (int i = 0; i < kBlocks; i += 2) {
      i % 4 == 0 ? overwrite(blocks[i], usable_bytes[i], 0x41)
                 : fill_with_addresses(blocks[i], usable_bytes[i], target);
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
