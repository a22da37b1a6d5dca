// With LOAM_HUGE_PAGES=on the heap requests huge pages in all of a heap of 200 MiB except its first
// 16, and in a block with a mapping of its own. Freed memory beside live blocks is still purged,
// and at the end all memory is. Without the option the heap does not request any. Argument: on or
// off, the option's value.
#include <sys/mman.h>

#include "check.h"

enum { kBlocks = 200 << 10, kSlabBytes = 1 << 10, kAlone = 64 << 20, kHuge = 2 << 20 };
static char* blocks[kBlocks];

static long huge_kib(void) { return proc_number("/proc/self/smaps_rollup", "\nAnonHugePages:"); }

// Resident KiB of the mappings for which huge pages were requested ("hg"). How many the system gave
// depends on its free memory.
static long asked_kib(void) {
  static char text[1 << 20];
  const long length = proc_text("/proc/self/smaps", text, sizeof text);
  CHECK(length > 0 && length < (long)sizeof text - 1);
  long sum = 0, resident = 0;
  for (const char* line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    if (strncmp(line, "Rss:", 4) == 0) resident = atol(line + 4);
    if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") != NULL) sum += resident;
  }
  return sum;
}

// Skipped if the kernel has no huge pages, and under an emulator.
static bool system_takes_advice(void) {
  char* const mapping =
      mmap(NULL, 4 * kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapping != MAP_FAILED);
  const bool asked = madvise(mapping, 4 * kHuge, MADV_HUGEPAGE) == 0;
  mapping[0] = 1;
  const bool takes = asked && asked_kib() != 0;
  munmap(mapping, 4 * kHuge);
  return takes;
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  const bool on = strcmp(argv[1], "on") == 0;
  if (!system_takes_advice()) SKIP("nobody can ask this system for huge pages");
  memset(blocks, 1, sizeof blocks);  // the table is not in the heap
  const long before = resident_kib();
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = opaque(malloc(kSlabBytes));
    CHECK(blocks[i] != NULL);
    memset(blocks[i], i, kSlabBytes);
  }
  const long full = resident_kib(), asked_full = asked_kib(), huge_full = huge_kib();
  char* alone = opaque(malloc(kAlone));
  CHECK(alone != NULL);
  memset(alone, 1, kAlone);
  const long asked_alone = asked_kib() - asked_full;
  free(alone);
  malloc_trim(0);
  // Frees nine in ten, in runs that are longer than pages.
  for (int i = 0; i < kBlocks; ++i) {
    if (i / 64 % 10 != 0) free(blocks[i]);
  }
  malloc_trim(0);
  const long thinned = resident_kib();
  for (int i = 0; i < kBlocks; ++i) {
    if (i / 64 % 10 != 0) continue;
    CHECK(blocks[i][0] == (char)i && blocks[i][kSlabBytes - 1] == (char)i);
    free(blocks[i]);
  }
  malloc_trim(0);
  const long empty = resident_kib();
  dprintf(2,
          "KiB: %ld resident at first; %ld with the blocks, asked for in %ld, huge in %ld; in %ld "
          "of a block of %d; %ld with a tenth; %ld in the end\n",
          before, full, asked_full, huge_full, asked_alone, kAlone >> 10, thinned, empty);
  const long wanted = (long)kBlocks * kSlabBytes >> 10;
  CHECK(full - before >= wanted && full - before < wanted + wanted / 8);
  if (on) {
    CHECK(asked_full >= wanted - (20 << 10) && asked_alone >= kAlone >> 10);
  } else {
    CHECK_EQUAL(asked_full + asked_alone, 0);
  }
  CHECK(thinned - before < wanted / 5);
  CHECK(empty - before < 4 << 10);
  return 0;
}
