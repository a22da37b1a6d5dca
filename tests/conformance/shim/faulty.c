/* An allocator with one known fault, for the runner's own test.  Each suite must notice the faults
   that it exists to find.  Every call goes to the C library's malloc.  The compiler defines FAULT,
   the number of the fault to add.  FAULT 0 adds none, and must pass. */

#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
  NONE,
  DIRTY_CALLOC,
  NULL_FOR_ZERO,
  NO_ENOMEM,
  ERRNO_LOST,
  MISALIGNED,
  TRUNCATED,
  GIVEN_TWICE
};

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

/* A failure keeps the earlier errno if the fault says so. */
static void *failed_quietly(void *block, int before) {
  if (FAULT == NO_ENOMEM && block == NULL) errno = before;
  return block;
}

void *malloc(size_t size) {
  int before = errno;
  if (FAULT == NULL_FOR_ZERO && size == 0) return NULL;
  if (FAULT == GIVEN_TWICE && (size == 20 || size == 64)) {
    /* Every 10th block of these sizes is the block of the call before.  It is never freed, so that
       the fault appears as an overlap and not as a double free.  The tests' own containers do not
       use these sizes, so that they stay whole. */
    static _Thread_local void *previous;
    static _Thread_local unsigned count;
    if (++count % 10 != 0 || previous == NULL) previous = __libc_malloc(size);
    return previous;
  }
  return failed_quietly(__libc_malloc(size), before);
}

void *calloc(size_t count, size_t size) {
  int before = errno;
  unsigned char *block = __libc_calloc(count, size);
  if (FAULT == DIRTY_CALLOC && block != NULL && count * size >= 512) block[count * size - 1] = 0xa5;
  return failed_quietly(block, before);
}

void *realloc(void *block, size_t size) {
  int before = errno;
  if (FAULT == NULL_FOR_ZERO && block == NULL && size == 0) return NULL;
  size_t old_size = block != NULL ? malloc_usable_size(block) : 0;
  unsigned char *moved = __libc_realloc(block, size);
  if (FAULT == TRUNCATED && moved != NULL && old_size > 16 && size > old_size)
    memset(moved + 16, 0xa5, old_size - 16);
  return failed_quietly(moved, before);
}

void free(void *block) {
  if (FAULT == GIVEN_TWICE && block != NULL &&
      (malloc_usable_size(block) == 24 || malloc_usable_size(block) == 72))
    return;
  __libc_free(block);
  if (FAULT == ERRNO_LOST && block != NULL) errno = EINVAL;
}

void *memalign(size_t alignment, size_t size) {
  int before = errno;
  return failed_quietly(__libc_memalign(FAULT == MISALIGNED ? 16 : alignment, size), before);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment % sizeof(void *) != 0)
    return EINVAL;
  void *result = memalign(alignment, size);
  if (result == NULL) return ENOMEM;
  *block = result;
  return 0;
}
