/* Every function of the C interface once or more, in C, on private heaps and on the default one. */
#include <loam/loam.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../preload/check.h"

static int asked;
static void* spare;

static int give_spare(void* context, loam_heap* heap, size_t bytes) {
  CHECK(context == &asked && bytes != 0);
  ++asked;
  if (spare == NULL) return 0;
  CHECK(loam_free(heap, spare) == LOAM_OK);
  spare = NULL;
  return 1;
}

static int is_zero(const void* block, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (((const unsigned char*)block)[i] != 0) return 0;
  }
  return 1;
}

static const size_t sizes[] = {
    0,        1,    15,    16,    17,    123,   456,    1000,   1024,     1025,
    5000,     9000, 16384, 20000, 32768, 32769, 100000, 262144, 1u << 20, 3000 * 1024 + 37,
    40u << 20};
enum { kSizes = sizeof sizes / sizeof *sizes };

static void blocks_of_every_size(loam_heap* heap, int exact) {
  void* blocks[kSizes];
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kSizes; ++i) {
      void* block = round == 1 ? loam_zalloc(heap, sizes[i]) : loam_alloc(heap, sizes[i]);
      CHECK(block != NULL && (uintptr_t)block % LOAM_ALIGNMENT == 0);
      CHECK(round != 1 || is_zero(block, sizes[i]));
      CHECK(loam_usable_size(heap, block) >= sizes[i]);
      const size_t size = loam_size(heap, block);
      CHECK(exact || sizes[i] > 32768 ? size == sizes[i] : size == loam_usable_size(heap, block));
      CHECK(loam_heap_of(block) == heap);
      CHECK(loam_validate(heap, block) == LOAM_OK);
      CHECK(malloc_usable_size(block) >= sizes[i]);
      memset(block, 0x5a + i, sizes[i]);
      blocks[i] = block;
    }
    CHECK(loam_validate(heap, NULL) == LOAM_OK);
    for (int i = 0; i < kSizes; ++i) {
      for (size_t k = 0; k < sizes[i]; k += 997) CHECK(((unsigned char*)blocks[i])[k] == 0x5a + i);
      if (round == 2) {
        free(blocks[i]);
      } else {
        CHECK(loam_free(heap, blocks[i]) == LOAM_OK);
      }
    }
  }
  CHECK(loam_validate(heap, NULL) == LOAM_OK);
  CHECK(loam_free(heap, NULL) == LOAM_OK);
}

static void resizing(loam_heap* heap, int exact) {
  void* block = loam_zalloc(heap, 100);
  memset(block, 1, 100);
  block = loam_zrealloc(heap, block, 1000);
  CHECK(block != NULL && is_zero((char*)block + 100, 900) && ((char*)block)[99] == 1);
  block = loam_zrealloc(heap, block, 1);
  block = loam_zrealloc(heap, block, 900);
  CHECK(is_zero((char*)block + 1, 899) && ((char*)block)[0] == 1);
  block = loam_zrealloc(heap, block, 1 << 20);
  CHECK(is_zero((char*)block + 1, (1 << 20) - 1));
  memset(block, 1, 1 << 20);
  block = loam_zrealloc(heap, block, 300000);
  block = loam_zrealloc(heap, block, 3000000);
  CHECK(((char*)block)[299999] == 1 && is_zero((char*)block + 300000, 2700000));
  block = loam_zrealloc(heap, block, 50u << 20);
  CHECK(((char*)block)[299999] == 1 && is_zero((char*)block + 300000, (50u << 20) - 300000));
  block = loam_realloc(heap, block, 60u << 20);
  CHECK(block != NULL && ((char*)block)[299999] == 1);
  block = loam_realloc(heap, block, 0);
  CHECK(block != NULL && loam_validate(heap, block) == LOAM_OK);
  CHECK(!exact || loam_size(heap, block) == 0);
  CHECK(loam_realloc(heap, NULL, 10) == NULL && loam_last_status() == LOAM_INVALID_BLOCK);
  CHECK(loam_realloc(heap, block, SIZE_MAX) == NULL && loam_last_status() == LOAM_OUT_OF_MEMORY);
  CHECK(loam_realloc(heap, block, SIZE_MAX - 7) == NULL);
  CHECK(loam_alloc(heap, SIZE_MAX) == NULL && loam_alloc(heap, SIZE_MAX - 7) == NULL);
  CHECK(loam_alloc(heap, (size_t)PTRDIFF_MAX) == NULL);
  CHECK(loam_validate(heap, block) == LOAM_OK);
  CHECK(loam_free(heap, block) == LOAM_OK);

  char* middle = loam_alloc(heap, 200000);
  CHECK(loam_try_resize(heap, middle, 100000) == LOAM_OK && loam_size(heap, middle) == 100000);
  CHECK(loam_try_resize(heap, middle, 150000) == LOAM_OK && loam_size(heap, middle) == 150000);
  CHECK(loam_free_sized(heap, middle, 150000) == LOAM_OK);
  char* small = loam_alloc(heap, 100);
  CHECK(loam_try_resize(heap, small, loam_usable_size(heap, small)) == LOAM_OK);
  CHECK(loam_try_resize(heap, small, loam_usable_size(heap, small) + 1) == LOAM_NOT_IN_PLACE);
  CHECK(loam_try_resize(heap, small, 100) == LOAM_OK);
  CHECK(loam_free_sized(heap, small, 1000) == LOAM_INVALID_ARGUMENT);
  CHECK(!exact || loam_free_sized(heap, small, 99) == LOAM_INVALID_ARGUMENT);
  CHECK(loam_free_sized(heap, small, 100) == LOAM_OK);
  small = loam_alloc(heap, 10);
  strcpy(small, "moved");
  small = realloc(small, 50000); /* malloc's own realloc keeps the block in its heap */
  CHECK(strcmp(small, "moved") == 0 && loam_heap_of(small) == heap);
  CHECK(loam_free(heap, small) == LOAM_OK);

  for (size_t alignment = 1; alignment <= 4u << 20; alignment *= 2) {
    for (size_t bytes = 1; bytes < 1u << 18; bytes = bytes * 3 + 1) {
      char* aligned = loam_aligned_alloc(heap, alignment, bytes);
      CHECK(aligned != NULL && (uintptr_t)aligned % alignment == 0);
      aligned[0] = 7;
      aligned[bytes - 1] = 7;
      aligned = loam_aligned_realloc(heap, aligned, alignment, bytes * 2, 1);
      CHECK((uintptr_t)aligned % alignment == 0 && aligned[0] == 7 &&
            (bytes == 1 || aligned[1] != 9));
      CHECK(loam_free(heap, aligned) == LOAM_OK);
    }
  }
  CHECK(loam_aligned_alloc(heap, 24, 10) == NULL && loam_last_status() == LOAM_INVALID_ARGUMENT);
  CHECK(loam_aligned_alloc(heap, 0, 10) == NULL);
}

static int count_live(void* context, const loam_walk_entry* entry) {
  size_t* live = context;
  if (entry->kind >= LOAM_ENTRY_SMALL) {
    ++live[0];
    live[1] += entry->bytes;
  }
  return 0;
}

static int stop_at_once(void* context, const loam_walk_entry* entry) {
  (void)entry;
  ++*(size_t*)context;
  return 1;
}

static void looking(loam_heap* heap, int exact) {
  void* blocks[200];
  size_t bytes = 0;
  for (int i = 0; i < 200; ++i) {
    bytes += (size_t)i * 37;
    blocks[i] = loam_alloc(heap, (size_t)i * 37);
  }
  void* large = loam_alloc(heap, 123456);
  void* huge = loam_alloc(heap, (40u << 20) + 5);
  size_t live[2] = {0, 0};
  CHECK(loam_walk(heap, count_live, live) == LOAM_OK);
  CHECK(live[0] == 202);
  CHECK(!exact || live[1] == bytes + 123456 + (40u << 20) + 5);
  loam_heap_summary summary;
  summary.size = sizeof summary;
  CHECK(loam_summary(heap, &summary) == LOAM_OK);
  CHECK(summary.blocks == 202 && summary.large_blocks == 2);
  CHECK(summary.allocated >= bytes && summary.committed >= summary.allocated);
  CHECK(summary.peak_committed >= summary.committed && summary.reserved >= summary.committed);
  size_t visits = 0;
  CHECK(loam_walk(heap, stop_at_once, &visits) == LOAM_OK && visits == 1);

  loam_walk_entry entry;
  memset(&entry, 0, sizeof entry);
  CHECK(loam_walk_next(heap, &entry) == LOAM_INVALID_ARGUMENT);
  entry.size = sizeof entry;
  size_t busy = 0, regions = 0;
  loam_status status;
  while ((status = loam_walk_next(heap, &entry)) == LOAM_OK) {
    busy += entry.kind >= LOAM_ENTRY_SMALL;
    regions += entry.kind == LOAM_ENTRY_REGION;
    CHECK(entry.address != NULL);
    if (entry.kind == LOAM_ENTRY_REGION) CHECK((char*)entry.last > (char*)entry.first);
  }
  CHECK(status == LOAM_NO_MORE && busy == 202 && regions == summary.spans);

  /* A step whose span no longer exists must report that. */
  entry.address = NULL;
  CHECK(loam_walk_next(heap, &entry) == LOAM_OK);
  for (int i = 0; i < 200; ++i) CHECK(loam_free(heap, blocks[i]) == LOAM_OK);
  CHECK(loam_free(heap, large) == LOAM_OK && loam_free(heap, huge) == LOAM_OK);
  size_t released = 1;
  loam_compact(heap, &released);
  status = loam_walk_next(heap, &entry);
  CHECK(status == LOAM_CHANGED || status == LOAM_NO_MORE || status == LOAM_OK);
  live[0] = 0;
  CHECK(loam_walk(heap, count_live, live) == LOAM_OK && live[0] == 0);
  CHECK(loam_trim(heap) == LOAM_OK && loam_trim(NULL) == LOAM_OK);
  summary.size = 1;
  CHECK(loam_summary(heap, &summary) == LOAM_INVALID_ARGUMENT);
}

static void behaviour(void) {
  loam_heap* heap = loam_heap_create(NULL);
  CHECK(loam_get_mode(heap) == LOAM_MODE_STANDARD);
  CHECK(loam_set_mode(heap, 7) == LOAM_INVALID_ARGUMENT);
  CHECK(loam_set_mode(heap, LOAM_MODE_LOOKASIDE) == LOAM_NOT_SUPPORTED);
  CHECK(loam_set_mode(heap, LOAM_MODE_STANDARD) == LOAM_OK);
  for (int i = 0; i < 18; ++i) {
    CHECK(loam_get_mode(heap) == LOAM_MODE_STANDARD);
    CHECK(loam_alloc(heap, 40) != NULL);
  }
  CHECK(loam_get_mode(heap) == LOAM_MODE_LOW_FRAGMENTATION);
  CHECK(loam_set_mode(heap, LOAM_MODE_STANDARD) == LOAM_ONE_WAY);
  CHECK(loam_set_mode(heap, LOAM_MODE_LOOKASIDE) == LOAM_ONE_WAY);
  CHECK(loam_set_mode(heap, LOAM_MODE_LOW_FRAGMENTATION) == LOAM_OK);

  CHECK(loam_get_small_threshold(heap) == LOAM_MAX_SMALL_THRESHOLD);
  CHECK(loam_set_small_threshold(heap, 20000) == LOAM_INVALID_ARGUMENT);
  for (int i = 0; i < 2000; ++i) CHECK(loam_free(heap, loam_alloc(heap, 2000)) == LOAM_OK);
  loam_heap_summary summary;
  summary.size = sizeof summary;
  CHECK(loam_summary(heap, &summary) == LOAM_OK);
#if !defined(_WIN32)  // Wine has no barrier of all threads, so private heaps have no caches
  CHECK(summary.cached != 0);
#endif
  CHECK(loam_set_small_threshold(heap, 0) == LOAM_OK && loam_get_small_threshold(heap) == 0);
  for (int i = 0; i < 2000; ++i) CHECK(loam_free(heap, loam_alloc(heap, 2000)) == LOAM_OK);
  CHECK(loam_summary(heap, &summary) == LOAM_OK && summary.cached == 0);
  CHECK(loam_validate(heap, NULL) == LOAM_OK);

  CHECK(loam_lock(heap) == LOAM_OK && loam_lock(heap) == LOAM_OK && loam_try_lock(heap) == LOAM_OK);
  void* block = loam_alloc(heap, 10); /* its holder may continue */
  CHECK(loam_free(heap, block) == LOAM_OK);
  CHECK(loam_unlock(heap) == LOAM_OK && loam_unlock(heap) == LOAM_OK &&
        loam_unlock(heap) == LOAM_OK);
  CHECK(loam_unlock(heap) == LOAM_NOT_OWNER);
  CHECK(loam_heap_destroy(heap) == LOAM_OK);
  CHECK(loam_heap_destroy(heap) == LOAM_INVALID_HEAP);
  CHECK(loam_alloc(heap, 1) == NULL && loam_last_status() == LOAM_INVALID_HEAP);
  CHECK(loam_free(heap, NULL) == LOAM_INVALID_HEAP && loam_lock(heap) == LOAM_INVALID_HEAP);
  CHECK(loam_get_mode(heap) == -1 && loam_heap_name(heap) == NULL);
  CHECK(loam_size(heap, &summary) == SIZE_MAX && loam_compact(heap, NULL) == 0);
}

static void fixed(void) {
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  options.maximum = 1280 << 10;
  options.on_failure = give_spare;
  options.context = &asked;
  options.name = "fixed";
  loam_heap* heap = loam_heap_create(&options);
  CHECK(heap != NULL && strcmp(loam_heap_name(heap), "fixed") == 0);
  CHECK(loam_alloc(heap, 1280 << 10) == NULL && loam_last_status() == LOAM_LIMIT_REACHED &&
        asked == 1);
  spare = loam_alloc(heap, 1100 << 10);
  CHECK(spare != NULL);
  void* block = loam_alloc(heap, 512 << 10); /* the callback frees the spare block */
  CHECK(block != NULL && asked == 2);
  CHECK(loam_alloc(heap, 800 << 10) == NULL && asked == 3);
  size_t count = 0;
  while (loam_alloc(heap, 64) != NULL) ++count;
  CHECK(count > (600u << 10) / 64 && loam_last_status() == LOAM_LIMIT_REACHED);
  loam_heap_summary summary;
  summary.size = sizeof summary;
  CHECK(loam_summary(heap, &summary) == LOAM_OK);
  CHECK(summary.peak_committed <= 1280 << 10 && summary.maximum == 1280 << 10);
  CHECK(loam_alloc(heap, 64) == NULL && loam_free(heap, block) == LOAM_OK);
  CHECK(loam_alloc(heap, 64) != NULL && loam_alloc(heap, 100000) != NULL);
  CHECK(loam_validate(heap, NULL) == LOAM_OK && loam_heap_destroy(heap) == LOAM_OK);

  options.on_failure = NULL;
  options.initial = 2 << 20;
  CHECK(loam_heap_create(&options) == NULL && loam_last_status() == LOAM_LIMIT_REACHED);
  options.initial = 1 << 20;
  heap = loam_heap_create(&options);
  CHECK(heap != NULL && loam_summary(heap, &summary) == LOAM_OK);
  CHECK(summary.committed >= 1 << 20 && summary.free == 1 << 20);
  block = loam_alloc(heap, 1100 << 10);
  CHECK(block != NULL && loam_validate(heap, NULL) == LOAM_OK);
  CHECK(loam_free(heap, block) == LOAM_OK);
  for (int i = 0; i < 1000; ++i) CHECK(loam_alloc(heap, 100) != NULL);
  CHECK(loam_validate(heap, NULL) == LOAM_OK && loam_heap_destroy(heap) == LOAM_OK);

  options.flags = 1u << 23;
  CHECK(loam_heap_create(&options) == NULL && loam_last_status() == LOAM_INVALID_ARGUMENT);
  options.flags = 0;
  options.size = 8;
  CHECK(loam_heap_create(&options) == NULL && loam_last_status() == LOAM_INVALID_ARGUMENT);
  struct {
    loam_heap_options known;
    size_t unknown;
  } later = {LOAM_HEAP_OPTIONS_INIT, 0};
  later.known.size = sizeof later;
  heap = loam_heap_create(&later.known);
  CHECK(heap != NULL && loam_heap_destroy(heap) == LOAM_OK);
  later.unknown = 1;
  CHECK(loam_heap_create(&later.known) == NULL && loam_last_status() == LOAM_INVALID_ARGUMENT);
  options.size = sizeof options;
  options.maximum = 1;
  CHECK((heap = loam_heap_create(&options)) == NULL); /* initial is still 1 MiB */
}

static void misuse(loam_heap* heap) {
  loam_heap* other = loam_heap_create(NULL);
  char* block = loam_alloc(heap, 100);
  char* large = loam_alloc(heap, 100000);
  char* huge = loam_alloc(heap, 40u << 20);
  char* foreign = loam_alloc(other, 100);
  char* plain = malloc(100);
  char stack = 0;
  static char data;
  loam_heap* heaps[2];
  heaps[0] = heap;
  heaps[1] = loam_default();
  for (int i = 0; i < 2; ++i) {
    heap = heaps[i];
    void* wild[] = {&stack,
                    &data,
                    (void*)8,
                    (void*)~(uintptr_t)0,
                    (void*)(uintptr_t)0xdeadbeefdeadbee0,
                    block + 1,
                    block + 16,
                    large + 4096,
                    large + 16,
                    huge + 4096,
                    (char*)(void*)heap};
    for (unsigned k = 0; k < sizeof wild / sizeof *wild; ++k) {
      CHECK(loam_free(heap, wild[k]) == LOAM_INVALID_BLOCK);
      CHECK(loam_validate(heap, wild[k]) == LOAM_INVALID_BLOCK);
      CHECK(loam_size(heap, wild[k]) == SIZE_MAX && loam_usable_size(heap, wild[k]) == SIZE_MAX);
      CHECK(loam_realloc(heap, wild[k], 10) == NULL && loam_last_status() == LOAM_INVALID_BLOCK);
      CHECK(loam_try_resize(heap, wild[k], 10) == LOAM_INVALID_BLOCK);
      CHECK(loam_heap_of(wild[k]) == NULL);
    }
    CHECK(loam_free(heap, foreign) == LOAM_WRONG_HEAP &&
          loam_validate(heap, foreign) == LOAM_WRONG_HEAP);
    CHECK(loam_size(heap, foreign) == SIZE_MAX && loam_realloc(heap, foreign, 1) == NULL);
  }
  heap = heaps[0];
  CHECK(loam_free(heap, plain) == LOAM_WRONG_HEAP && loam_heap_of(plain) == loam_default());
  CHECK(loam_validate(loam_default(), block) == LOAM_WRONG_HEAP);
  CHECK(loam_validate(other, foreign) == LOAM_OK && loam_validate(heap, block) == LOAM_OK);
  for (int round = 0; round < 2; ++round) {
    CHECK(loam_free(heap, block) == (round == 0 ? LOAM_OK : LOAM_INVALID_BLOCK));
    CHECK(loam_free(heap, large) == (round == 0 ? LOAM_OK : LOAM_INVALID_BLOCK));
    CHECK(loam_free(heap, huge) == (round == 0 ? LOAM_OK : LOAM_INVALID_BLOCK));
    CHECK(loam_free(loam_default(), plain) == (round == 0 ? LOAM_OK : LOAM_INVALID_BLOCK));
    CHECK(loam_validate(heap, block) == LOAM_INVALID_BLOCK);
  }
  CHECK(loam_alloc(NULL, 1) == NULL && loam_last_status() == LOAM_INVALID_HEAP);
  CHECK(loam_alloc((loam_heap*)&stack, 1) == NULL && loam_last_status() == LOAM_INVALID_HEAP);
  CHECK(loam_alloc((loam_heap*)(void*)0x1000, 1) == NULL);
  CHECK(loam_free((loam_heap*)(void*)0x1000, foreign) == LOAM_INVALID_HEAP);
  CHECK(loam_heap_destroy(other) == LOAM_OK);
  CHECK(loam_validate(heap, foreign) == LOAM_INVALID_BLOCK);
  CHECK(loam_validate(heap, NULL) == LOAM_OK);
}

int main(void) {
  errno = 5;
  CHECK(loam_last_status() == LOAM_OK);
  CHECK(loam_version() == LOAM_HEADER_VERSION && strchr(loam_version_text(), '.') != NULL);
  CHECK(strcmp(loam_status_text(LOAM_OK), "no error") == 0);
  CHECK(strcmp(loam_status_text(-3), "unknown status") == 0 &&
        strcmp(loam_status_text(99), "unknown status") == 0);
  for (int i = 0; i <= LOAM_CORRUPT; ++i) CHECK(strcmp(loam_status_text(i), "unknown status") != 0);
  CHECK(strcmp(loam_status_text(LOAM_LIMIT_REACHED), "the heap's maximum is reached") == 0);
  CHECK(strcmp(loam_status_text(LOAM_BUSY), "another thread holds the heap's lock") == 0);
  CHECK(strcmp(loam_status_text(LOAM_WRONG_HEAP), "a block of another heap") == 0);
  CHECK(strcmp(loam_status_text(LOAM_NO_MORE), "the walk is at its end") == 0);
  CHECK(strstr(loam_status_text(LOAM_CORRUPT), "contradict each other") != NULL);

  const unsigned variants[] = {
      0,
      LOAM_HEAP_EXACT_SIZES,
      LOAM_HEAP_EAGER,
      LOAM_HEAP_UNSYNCHRONIZED,
      LOAM_HEAP_ZERO_ON_FREE,
      LOAM_HEAP_EAGER | LOAM_HEAP_EXACT_SIZES,
      LOAM_HEAP_EAGER | LOAM_HEAP_UNSYNCHRONIZED | LOAM_HEAP_EXACT_SIZES | LOAM_HEAP_ZERO_ON_FREE};
  for (unsigned v = 0; v < sizeof variants / sizeof *variants; ++v) {
    loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
    options.flags = variants[v];
    loam_heap* heap = loam_heap_create(&options);
    CHECK(heap != NULL && loam_heap_flags(heap) == variants[v]);
    CHECK(strcmp(loam_heap_name(heap), "") == 0);
    const int exact = (variants[v] & LOAM_HEAP_EXACT_SIZES) != 0;
    for (int twice = 0; twice < (v == 0 ? 2 : 1); ++twice) {
      blocks_of_every_size(heap, exact);
      resizing(heap, exact);
      looking(heap, exact);
      misuse(heap);
    }
    if ((variants[v] & LOAM_HEAP_ZERO_ON_FREE) != 0) {
      for (int i = 0; i < 200; ++i) {
        char* secret = loam_alloc(heap, 100);
        CHECK(i == 0 || is_zero(secret, 100));
        memset(secret, 9, 100);
        CHECK(loam_free(heap, secret) == LOAM_OK);
      }
    }
    CHECK(loam_validate(heap, NULL) == LOAM_OK);
    CHECK(loam_heap_destroy(heap) == LOAM_OK);
  }
  behaviour();
  fixed();

  loam_heap* all[3] = {NULL, NULL, NULL};
  CHECK(loam_heaps(NULL, 0) == 1 && loam_heaps(all, 3) == 1 && all[0] == loam_default());
  loam_heap* one = loam_heap_create(NULL);
  CHECK(loam_heaps(all, 3) == 2 && all[1] == one && all[0] == loam_default());
  CHECK(loam_heap_destroy(one) == LOAM_OK && loam_heaps(all, 3) == 1);

  loam_heap* standard = loam_default();
  CHECK(strcmp(loam_heap_name(standard), "default") == 0 && loam_heap_flags(standard) == 0);
  blocks_of_every_size(standard, 0);
  resizing(standard, 0);
  CHECK(loam_lock(standard) == LOAM_OK && loam_try_lock(standard) == LOAM_OK);
  CHECK(loam_unlock(standard) == LOAM_OK && loam_unlock(standard) == LOAM_OK);
  CHECK(loam_unlock(standard) == LOAM_NOT_OWNER);
  size_t live[2] = {0, 0};
  void* block = malloc(1000);
  CHECK(loam_walk(standard, count_live, live) == LOAM_OK && live[0] >= 1 && live[1] >= 1000);
  free(block);
  loam_heap_summary summary;
  summary.size = sizeof summary;
  CHECK(loam_summary(standard, &summary) == LOAM_OK && summary.committed >= summary.allocated);
  size_t released = 0;
  loam_compact(standard, &released);
  CHECK(loam_trim(standard) == LOAM_OK);
  CHECK(loam_get_mode(standard) == 2 && loam_set_mode(standard, 2) == LOAM_OK);
  CHECK(loam_set_mode(standard, 0) == LOAM_ONE_WAY);
  CHECK(loam_set_small_threshold(standard, 0) == LOAM_NOT_SUPPORTED);
  CHECK(loam_heap_destroy(standard) == LOAM_NOT_SUPPORTED);

  CHECK(loam_get_corruption_policy() == LOAM_CORRUPTION_ABORT);
  CHECK(loam_set_corruption_policy(9) == LOAM_INVALID_ARGUMENT);
  CHECK(loam_set_corruption_policy(LOAM_CORRUPTION_REPORT) == LOAM_ONE_WAY);
  CHECK(loam_set_corruption_policy(LOAM_CORRUPTION_TERMINATE) == LOAM_OK);
  CHECK(loam_set_corruption_policy(LOAM_CORRUPTION_ABORT) == LOAM_ONE_WAY);
  CHECK(loam_get_corruption_policy() == LOAM_CORRUPTION_TERMINATE);
  CHECK(errno == 5);
  return 0;
}
