// Edge values of the C family.
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <string.h>

#include "program.h"

int main(void) {
  // Half of the block's pages are touched.
  const size_t large = 64 * 4096;
  expect_size(large, 1, 1);
  char* pages = aligned_alloc(4096, large);
  memset(pages, 1, large / 2);
  free(pages);
  if (getenv("LOAM_EXACT_TOUCHES") != NULL) printf("expect touched %zu 32\n", large);

  free(NULL);
  expect_size(101, 3, 3);
  free(malloc(101));
  free(realloc(NULL, 101));
  void* block = calloc(1, 101);
  CHECK(block != NULL && memcmp(block, "\0\0\0", 3) == 0);
  free(block);

  // A resize that fails does not change the block. A resize to zero bytes frees it.
  expect_size(102, 2, 2);
  block = malloc(102);
  CHECK(realloc(block, PTRDIFF_MAX) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(reallocarray(block, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
  free(block);
  block = malloc(102);
  block = realloc(block, 0);
  free(block);

  expect_size(103, 1, 1);
  expect_size(104, 1, 1);
  expect_size(5 * 21, 1, 1);
  block = realloc(malloc(103), 104);
  block = reallocarray(block, 5, 21);
  free(block);

  expect_size(106, 5, 5);
  CHECK(posix_memalign(&block, 64, 106) == 0 && (uintptr_t)block % 64 == 0);
  free(block);
  free(aligned_alloc(64, 106));
  free(memalign(32, 106));
  free(valloc(106));
  errno = 0;
  free(calloc(2, 53));
  CHECK(errno == 0);
  CHECK(posix_memalign(&block, 3, 107) == EINVAL);
  expect_size(107, 1, 0);

  // Failures are recorded as allocations at no address.
  CHECK(malloc(PTRDIFF_MAX) == NULL && calloc(SIZE_MAX, SIZE_MAX) == NULL);
  expect_size(SIZE_MAX, 1, 0);
  expect_size(PTRDIFF_MAX, 1, 0);

  // A size of more than 32 bits: only address space.
  const size_t huge = ((size_t)5 << 30) + 3;
  block = malloc(huge);
  const unsigned long given = block != NULL;
  free(block);
  printf("expect size %zu allocated 1 freed %lu\n", huge, given);

  block = malloc(109);
  CHECK(malloc_usable_size(block) >= 109 && malloc_usable_size(NULL) == 0);
  free(block);
  expect_size(109, 1, 1);
  printf("expect processes 1\nexpect threads 1\n");
  return 0;
}
