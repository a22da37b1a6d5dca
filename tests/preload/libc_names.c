// rpmalloc#374: the C library's own names for malloc and its kin mean this heap, and blocks go both
// ways between the names.
#include "check.h"

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* __libc_valloc(size_t);
void* __libc_pvalloc(size_t);
void __libc_free(void*);

static void both_ways(void* theirs, size_t bytes) {
  CHECK(theirs != NULL && malloc_usable_size(theirs) >= bytes);
  fill_pattern(theirs, bytes, bytes);
  void* grown = realloc(opaque(theirs), bytes + 1000);
  CHECK(grown != NULL && has_pattern(grown, bytes, bytes));
  grown = __libc_realloc(opaque(grown), bytes * 2 + 1);
  CHECK(grown != NULL && has_pattern(grown, bytes, bytes));
  free(opaque(grown));
}

int main(void) {
  for (size_t bytes = 1; bytes < 10000000; bytes = bytes * 5 + 3) {
    both_ways(opaque(__libc_malloc(bytes)), bytes);
    both_ways(opaque(__libc_realloc(NULL, bytes)), bytes);
    char* zero = opaque(__libc_calloc(bytes, 1));
    for (size_t i = 0; i < bytes; i += 997) CHECK_EQUAL(zero[i], 0);
    both_ways(zero, bytes);
    for (size_t alignment = 16; alignment <= 65536; alignment *= 8) {
      void* block = opaque(__libc_memalign(alignment, bytes));
      CHECK_EQUAL((uintptr_t)block % alignment, 0);
      both_ways(block, bytes);
    }
    both_ways(opaque(__libc_valloc(bytes)), bytes);
    both_ways(opaque(__libc_pvalloc(bytes)), bytes);
    __libc_free(opaque(malloc(bytes)));
    __libc_free(opaque(aligned_alloc(64, (bytes + 63) / 64 * 64)));
    free(opaque(__libc_malloc(bytes)));
  }
  __libc_free(NULL);
  errno = 0;
  CHECK(__libc_malloc(opaque_size(SIZE_MAX)) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(__libc_calloc(opaque_size(SIZE_MAX), 2) == NULL && errno == ENOMEM);
  return 0;
}
