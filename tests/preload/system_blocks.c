// rpmalloc#374 and similar issues: blocks of the C library's own allocator reach free(), realloc()
// and malloc_usable_size() in any thread, and return to that allocator. They come from a library
// that is bound past the heap, or were made before the heap was loaded.
#include <dlfcn.h>
#include <pthread.h>

#include "check.h"

static void* (*their_malloc)(size_t);
static void* (*their_memalign)(size_t, size_t);
static void (*their_free)(void*);

static void* theirs_by_name(void* library, const char* name) {
  void* found = dlsym(library, name);
  CHECK(found != NULL);
  return found;
}

static const size_t kSizes[] = {0,    1,     24,     25,     100,     1000,   1032,
                                5000, 70000, 135000, 200000, 1000001, 3000000};
enum { kCount = sizeof kSizes / sizeof kSizes[0] };

// Makes one block of each size, beside other blocks, and fills it.
static void make(void** blocks, size_t alignment) {
  for (int i = 0; i < kCount; ++i) {
    blocks[i] = alignment == 0 ? their_malloc(kSizes[i]) : their_memalign(alignment, kSizes[i]);
    CHECK(blocks[i] != NULL);
    fill_pattern(blocks[i], kSizes[i], (uint64_t)i);
  }
}

static void give(void** blocks) {
  for (int i = 0; i < kCount; ++i) {
    CHECK(malloc_usable_size(blocks[i]) >= kSizes[i]);
    if (i % 2 == 0) {
      free(opaque(blocks[i]));
      continue;
    }
    void* moved = realloc(opaque(blocks[i]), kSizes[i] + 4000);
    CHECK(moved != NULL && has_pattern(moved, kSizes[i], (uint64_t)i));
    moved = realloc(moved, kSizes[i] / 2 + 1);
    CHECK(moved != NULL && has_pattern(moved, kSizes[i] / 2, (uint64_t)i));
    free(moved);
  }
}

static void round_trip(void) {
  void* blocks[kCount];
  for (size_t alignment = 0; alignment <= (1 << 20);
       alignment = alignment == 0 ? 32 : alignment * 8) {
    make(blocks, alignment);
    give(blocks);
  }
  // The C library's own free lists are in order.
  for (int i = 0; i < 1000; ++i) their_free(their_malloc((size_t)i * 37));
}

static void* in_a_thread(void* blocks) {
  round_trip();
  if (blocks != NULL) make(blocks, 0);
  return NULL;
}

int main(void) {
  void* library = dlopen("libc.so.6", RTLD_NOW);
  if (library == NULL) SKIP("another C library");
  *(void**)(&their_malloc) = theirs_by_name(library, "__libc_malloc");
  *(void**)(&their_memalign) = theirs_by_name(library, "__libc_memalign");
  *(void**)(&their_free) = theirs_by_name(library, "__libc_free");
  round_trip();
  void* of_thread[4][kCount];
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i)
    CHECK_EQUAL(pthread_create(&threads[i], NULL, in_a_thread, of_thread[i]), 0);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < 4; ++i) give(of_thread[i]);  // of arenas that no thread uses any more
  for (int i = 0; i < 20000; ++i) free(opaque(their_malloc((size_t)i % 3000)));
  return 0;
}
