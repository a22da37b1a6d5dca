// Memory runs out under RLIMIT_AS or RLIMIT_DATA (argument: as | data). Every entry point then
// returns null with ENOMEM, and no block is lost. After some blocks are freed, the heap serves
// again. RLIMIT_DATA stands for strict overcommit, which no test may switch on: both refuse private
// writable memory that was never touched.
#include <pthread.h>
#include <sys/resource.h>

#include "check.h"

enum { kMostBlocks = 1 << 20 };
static void* blocks[kMostBlocks];

static int fill(size_t size) {
  int count = 0;
  for (; count < kMostBlocks; ++count) {
    errno = 0;
    void* const block = opaque(malloc(size));
    if (block == NULL) {
      CHECK_EQUAL(errno, ENOMEM);
      return count;
    }
    ((char*)block)[0] = (char)count;
    ((char*)block)[size - 1] = (char)count;
    blocks[count] = block;
  }
  return count;
}

static void empty(int count, size_t size) {
  for (int i = 0; i < count; ++i) {
    CHECK(((char*)blocks[i])[0] == (char)i && ((char*)blocks[i])[size - 1] == (char)i);
    free(blocks[i]);
  }
}

// `size` is what malloc has just refused; `too_large` cannot fit whatever is free. A heap may still
// have room for another size or alignment, so those calls get only `too_large`.
static void check_every_entry_point_refuses(size_t size, size_t too_large) {
  errno = 0;
  CHECK(opaque(calloc(1, size)) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(opaque(realloc(NULL, size)) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(opaque(malloc(too_large)) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(opaque(calloc(too_large, 1)) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(opaque(memalign(4096, too_large)) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(opaque(aligned_alloc(64, too_large)) == NULL && errno == ENOMEM);
  void* out = NULL;
  CHECK_EQUAL(posix_memalign(&out, 64, too_large), ENOMEM);
}

static void one_cycle(size_t size, size_t limit) {
  const int count = fill(size);
  // The heap may need a part of the limit for itself, but not most of it. Under RLIMIT_AS, the
  // records of every GiB with blocks in it take 17.5 MiB of address space, and by chance the blocks
  // may be in two of them.
  CHECK((size_t)count * size > limit / 5 * 2);
  CHECK(count < kMostBlocks);
  check_every_entry_point_refuses(size, limit);
  // A block that cannot grow stays as it was.
  void* const kept = blocks[0];
  errno = 0;
  CHECK(realloc(kept, limit) == NULL && errno == ENOMEM);
  // After a few frees, as many blocks fit again.
  const int some = count / 10 + 1;
  for (int i = 0; i < some; ++i) free(blocks[count - 1 - i]);
  for (int i = 0; i < some / 2; ++i) {
    void* const block = opaque(malloc(size));
    CHECK(block != NULL);
    free(block);
  }
  empty(count - some, size);
  // After all frees, blocks of another size fit.
  void* const other = opaque(malloc(limit / 4));
  CHECK(other != NULL);
  memset(other, 1, limit / 4);
  free(other);
}

// Threads reach the limit at the same time. Each must see null, and not crash. They are started
// beforehand, because some mallocs leave no room for their stacks.
static pthread_barrier_t start;
static void* grab(void* argument) {
  (void)argument;
  pthread_barrier_wait(&start);
  enum { kMine = 4000 };
  void** const mine = calloc(kMine, sizeof *mine);
  if (mine == NULL) return NULL;
  for (int round = 0; round < 3; ++round) {
    int count = 0;
    while (count < kMine && (mine[count] = malloc(50000)) != NULL) {
      memset(mine[count], 1, 50000);
      ++count;
    }
    while (count > 0) free(mine[--count]);
  }
  free(mine);
  return NULL;
}

int main(int argc, char** argv) {
  CHECK_EQUAL(argc, 2);
  const bool data = strcmp(argv[1], "data") == 0;
  const size_t limit = (size_t)200 << 20;
  const struct rlimit narrow = {limit, limit};
  CHECK_EQUAL(setrlimit(data ? RLIMIT_DATA : RLIMIT_AS, &narrow), 0);

  enum { kThreads = 4 };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  pthread_barrier_init(&start, NULL, kThreads + 1);
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    CHECK_EQUAL(pthread_create(&threads[i], &attributes, grab, NULL), 0);
  }

  const size_t kSizes[] = {1000, 5000, 40000, 300000, 3000000, 40000000, 300, 2000};
  for (size_t i = 0; i < sizeof kSizes / sizeof kSizes[0]; ++i) one_cycle(kSizes[i], limit);
  pthread_barrier_wait(&start);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  one_cycle(20000, limit);
  return 0;
}
