// Every function of the standard C family keeps its basic promise.
#include "check.h"

extern void cfree(void*) __attribute__((weak));

static void allocation(void) {
  char* block = opaque(malloc(100));
  CHECK(block != NULL);
  memset(block, 0x5A, 100);
  free(block);

  block = opaque(calloc(25, 4));
  CHECK(block != NULL);
  for (int i = 0; i < 100; ++i) CHECK(block[i] == 0);
  free(block);

  block = opaque(realloc(NULL, 10));
  CHECK(block != NULL);
  memcpy(block, "123456789", 10);
  block = opaque(realloc(block, 10000));
  CHECK(block != NULL && strcmp(block, "123456789") == 0);
  block = opaque(realloc(block, 10));
  CHECK(block != NULL && strcmp(block, "123456789") == 0);
  block = opaque(reallocarray(block, 50, 20));
  CHECK(block != NULL && strcmp(block, "123456789") == 0);
  CHECK(malloc_usable_size(block) >= 1000);
  errno = 0;
  CHECK(reallocarray(block, SIZE_MAX / 2, opaque_size(4)) == NULL && errno == ENOMEM);
  CHECK(strcmp(block, "123456789") == 0);
  free(block);
  free(NULL);
}

static void aligned(void) {
  void* block = NULL;
  CHECK_EQUAL(posix_memalign(&block, 64, 1000), 0);
  CHECK((uintptr_t)block % 64 == 0);
  free(block);

  block = opaque(aligned_alloc(256, 512));
  CHECK(block != NULL && (uintptr_t)block % 256 == 0);
  free(block);

  block = opaque(memalign(1024, 3));
  CHECK(block != NULL && (uintptr_t)block % 1024 == 0);
  free(block);

  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  block = opaque(valloc(10));
  CHECK(block != NULL && (uintptr_t)block % page == 0);
  free(block);

  // pvalloc also rounds the size up to whole pages.
  block = opaque(pvalloc(page + 1));
  CHECK(block != NULL && (uintptr_t)block % page == 0);
  CHECK(malloc_usable_size(block) >= 2 * page);
  memset(block, 1, 2 * page);
  free(block);
  block = opaque(pvalloc(1));
  CHECK(block != NULL && malloc_usable_size(block) >= page);
  free(block);
}

static void questions(void) {
  CHECK_EQUAL(malloc_usable_size(NULL), 0);
  (void)malloc_trim(0);
  // Known parameters may be accepted or refused. An unknown one must do no harm.
  const int taken = mallopt(M_TRIM_THRESHOLD, 128 * 1024);
  CHECK(taken == 0 || taken == 1);
  const int unknown = mallopt(12345, 1);
  CHECK(unknown == 0 || unknown == 1);
}

int main(void) {
  allocation();
  aligned();
  questions();
  if (cfree != NULL) {
    void* const block = opaque(malloc(40));
    cfree(block);
  }
  return 0;
}
