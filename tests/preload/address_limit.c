// A program starts, and works, under a limit of its address space (ulimit -v) of 24 MiB: half of
// that can be used as small blocks, and afterwards, in part, as one long block. Shells set such
// limits, and so do judges of programs.
#include "check.h"

enum { kLimitMib = 24, kSmall = 1000, kLong = 5000000 };

static size_t fill(size_t size) {
  void* newest = NULL;
  size_t taken = 0;
  for (;;) {
    void** const block = opaque(malloc(size));
    if (block == NULL) break;
    memset(block, 1, size);
    *block = newest;
    newest = block;
    taken += size;
  }
  CHECK_EQUAL(errno, ENOMEM);
  while (newest != NULL) {
    void* const next = *(void**)newest;
    free(newest);
    newest = next;
  }
  return taken;
}

int main(int count, char** arguments) {
  if (count == 1) {
    const struct rlimit limit = {(size_t)kLimitMib << 20, (size_t)kLimitMib << 20};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    execl("/proc/self/exe", arguments[0], "limited", NULL);
    CHECK(!"started");
  }
  CHECK(fill(kSmall) >= (size_t)kLimitMib << 19);
  CHECK(fill(kLong) >= kLong);
  CHECK(fill(kSmall) >= (size_t)kLimitMib << 19);
  return 0;
}
