// Requests that cannot be served fail with null and ENOMEM. They never wrap round to a small size.
#include "check.h"

#define CHECK_REFUSED(call)      \
  do {                           \
    errno = 0;                   \
    CHECK(opaque(call) == NULL); \
    CHECK_EQUAL(errno, ENOMEM);  \
  } while (0)

// Linux refuses a request that the machine's memory cannot serve, unless its administrator set
// overcommit_memory to 1. A block that is granted all the same would end the process when it is
// used.
static void refuse_more_than_the_machine_has(void) {
  const long policy = proc_number("/proc/sys/vm/overcommit_memory", "");
  const long memory = proc_number("/proc/meminfo", "MemTotal:");
  const long swap = proc_number("/proc/meminfo", "SwapTotal:");
  if (policy == 1 || memory <= 0 || swap < 0) return;
  const size_t size = ((size_t)memory + (size_t)swap) * 1024 * 2;
  char* const small = opaque(malloc(1000));
  char* const large = opaque(malloc((size_t)1 << 20));
  CHECK_REFUSED(malloc(size));
  CHECK_REFUSED(calloc(size / 1024, 1024));
  CHECK_REFUSED(realloc(small, size));
  CHECK_REFUSED(realloc(large, size));
  CHECK_REFUSED(memalign((size_t)4 << 20, size));
  void* out = NULL;
  CHECK_EQUAL(posix_memalign(&out, 64, size), ENOMEM);
  char* mapping = opaque(malloc((size_t)64 << 20));
  CHECK(mapping != NULL);
  CHECK_REFUSED(realloc(mapping, size));
  for (void* block = small; block != NULL; block = block == small   ? large
                                                   : block == large ? mapping
                                                                    : NULL)
    free(block);
}

int main(void) {
  const size_t kHuge[] = {SIZE_MAX,
                          SIZE_MAX - 1,
                          SIZE_MAX - 15,
                          SIZE_MAX - 4095,
                          SIZE_MAX - 65535,
                          SIZE_MAX - (2u << 20),
                          SIZE_MAX / 2 + 2,
                          (size_t)PTRDIFF_MAX + 1,
                          (size_t)PTRDIFF_MAX,
                          (size_t)PTRDIFF_MAX - 4096,
                          (size_t)1 << 62,
                          (size_t)1 << 56,
                          (size_t)1 << 48};
  char* const block = opaque(malloc(100));
  CHECK(block != NULL);
  memcpy(block, "still here", 11);
  for (size_t i = 0; i < sizeof kHuge / sizeof kHuge[0]; ++i) {
    const size_t size = opaque_size(kHuge[i]);
    CHECK_REFUSED(malloc(size));
    CHECK_REFUSED(calloc(size, 1));
    CHECK_REFUSED(calloc(1, size));
    CHECK_REFUSED(realloc(block, size));
    CHECK_REFUSED(realloc(NULL, size));
    CHECK_REFUSED(reallocarray(block, size, 1));
    CHECK_REFUSED(memalign(16, size));
    CHECK_REFUSED(memalign(4096, size));
    CHECK_REFUSED(memalign((size_t)4 << 20, size));
    CHECK_REFUSED(valloc(size));
    CHECK_REFUSED(pvalloc(size));
    CHECK_REFUSED(aligned_alloc(64, size & ~(size_t)63));
    void* out = (void*)(uintptr_t)0x1234;
    CHECK_EQUAL(posix_memalign(&out, 64, size), ENOMEM);
  }
  // Products that overflow, some to a small number.
  CHECK_REFUSED(calloc(opaque_size((size_t)1 << 33), (size_t)1 << 33));
  CHECK_REFUSED(calloc(opaque_size((size_t)1 << 32), ((size_t)1 << 32) + 1));
  CHECK_REFUSED(calloc(opaque_size(SIZE_MAX / 2 + 1), 2));
  CHECK_REFUSED(reallocarray(block, opaque_size((size_t)1 << 33), (size_t)1 << 33));
  // A huge alignment with a small size.
  CHECK_REFUSED(memalign(opaque_size((size_t)1 << 62), 100));
  void* out = NULL;
  CHECK_EQUAL(posix_memalign(&out, opaque_size((size_t)1 << 62), 100), ENOMEM);
  CHECK(strcmp(block, "still here") == 0);
  free(block);
  refuse_more_than_the_machine_has();
  return 0;
}
