// A process that frees its peak and then makes no call holds little: nothing but the frees
// themselves gives the memory back, so each bound holds right after the last free. Each form runs
// in a child of its own, which reads its own resident memory.
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

#include "check.h"

enum { kMost = 1 << 20, kAtOnce = 8 << 10 /* KiB */ };

typedef enum { kInOrder, kInReverse, kAtRandom } Order;

typedef struct {
  const char* name;
  size_t bytes;        // of the peak
  size_t least, most;  // of a block
  Order order;
  int threads;   // that have the peak together; 0: the main thread
  bool other;    // another thread frees
  size_t stays;  // the first one in so many
} Form;

static const Form forms[] = {
    {"mixed sizes in order", 64 << 20, 16, 1515, kInOrder, 0, false, 12},
    {"mixed sizes in reverse", 64 << 20, 16, 1515, kInReverse, 0, false, 0},
    {"mixed sizes at random", 64 << 20, 16, 1515, kAtRandom, 0, false, 0},
    {"small sizes at random", 64 << 20, 16, 512, kAtRandom, 0, false, 0},
    {"64 B at random", 32 << 20, 64, 64, kAtRandom, 0, false, 0},
    {"4 KB at random", 64 << 20, 4096, 4096, kAtRandom, 0, false, 0},
    {"100 KB at random", 96 << 20, 102400, 102400, kAtRandom, 0, false, 0},
    {"4 MB in order", 96 << 20, 4 << 20, 4 << 20, kInOrder, 0, false, 0},
    {"freed by another thread", 64 << 20, 16, 1515, kAtRandom, 0, true, 0},
    {"in a worker that then waits", 64 << 20, 16, 1515, kInOrder, 1, false, 0},
};

static void** blocks;
static uint64_t state = 1;

// The table is not in the heap.
static void make_table(void) {
  blocks = mmap(NULL, kMost * sizeof(void*), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  CHECK(blocks != MAP_FAILED);
}

static size_t fill(const Form* form) {
  size_t count = 0, bytes = 0;
  for (; bytes < form->bytes; ++count) {
    CHECK(count < kMost);
    const size_t size = form->least + next_random(&state) % (form->most - form->least + 1);
    blocks[count] = opaque(malloc(size));
    CHECK(blocks[count] != NULL);
    memset(blocks[count], 1, size);
    bytes += size;
  }
  return count;
}

static size_t blocks_made, blocks_stay;

static void* empty(void* argument) {
  const Form* const form = argument;
  void** const first = blocks + blocks_stay;
  const size_t count = blocks_made - blocks_stay;
  for (size_t i = count; i > 1 && form->order == kAtRandom; --i) {
    const size_t other = next_random(&state) % i;
    void* const block = first[i - 1];
    first[i - 1] = first[other];
    first[other] = block;
  }
  for (size_t i = 0; i < count; ++i) free(first[form->order == kInReverse ? count - 1 - i : i]);
  return NULL;
}

static int ready[2], never[2];

static void* work(void* argument) {
  const Form* const form = argument;
  blocks_made = fill(form);
  empty(argument);
  char byte = 0;
  CHECK_EQUAL(write(ready[1], &byte, 1), 1);
  CHECK_EQUAL(read(never[0], &byte, 1), -1);  // until the process ends
  return NULL;
}

static void run(const void* argument) {
  const Form* const form = argument;
  free(opaque(malloc(100)));
  make_table();
  CHECK(pipe(ready) == 0 && pipe(never) == 0);
  const long before = resident_kib();
  pthread_t thread;
  if (form->threads != 0) {
    CHECK_EQUAL(pthread_create(&thread, NULL, work, (void*)form), 0);
    char byte;
    CHECK_EQUAL(read(ready[0], &byte, 1), 1);
  } else {
    blocks_made = fill(form);
    blocks_stay = form->stays == 0 ? 0 : blocks_made / form->stays;
    if (form->other) {
      CHECK_EQUAL(pthread_create(&thread, NULL, empty, (void*)form), 0);
      CHECK_EQUAL(pthread_join(thread, NULL), 0);
    } else {
      empty((void*)form);
    }
  }
  const long live = form->stays == 0 ? 0 : (long)(form->bytes / form->stays / 1024);
  const long kept = resident_kib() - before, most = live + live / 4 + kAtOnce;
  dprintf(2, "%s: %ld KiB of %zu, at most %ld\n", form->name, kept, form->bytes / 1024, most);
  CHECK(kept <= most);
}

// One block in twenty stays, so hardly a span is empty. What a trim would give back has gone.
static void survivors(const void* unused) {
  (void)unused;
  enum { kSurvivors = 60000, kStays = 20 };
  make_table();
  free(opaque(malloc(100)));
  const long before = resident_kib();
  for (size_t i = 0; i < kSurvivors; ++i) {
    blocks[i] = opaque(malloc(33 + i % 3000));
    memset(blocks[i], 1, 33 + i % 3000);
  }
  for (size_t i = 0; i < kSurvivors; ++i) {
    if (i % kStays != 0) free(blocks[i]);
  }
  const long kept = resident_kib() - before;
  malloc_trim(0);
  const long trimmed = resident_kib() - before;
  dprintf(2, "one in %d stays: %ld KiB, %ld after a trim\n", kStays, kept, trimmed);
  CHECK(kept <= trimmed + trimmed / 5 + 4096);
}

// A peak that comes back costs one fault a page once, and nothing from then on.
static void rounds(const void* unused) {
  (void)unused;
  static const Form form = {"rounds", 64 << 20, 16, 1515, kAtRandom, 0, false, 0};
  make_table();
  long faults[4];
  for (int i = 0; i < 4; ++i) {
    state = 1;
    const long before = minor_faults();
    blocks_made = fill(&form);
    faults[i] = minor_faults() - before;
    empty((void*)&form);
  }
  dprintf(2, "faults a round: %ld %ld %ld %ld\n", faults[0], faults[1], faults[2], faults[3]);
  CHECK(faults[1] <= (long)(form.bytes / 4096 * 9 / 8));
  CHECK(faults[2] <= 2000 && faults[3] <= 2000);
}

// Use falls by random shares, of random blocks, and rises again each time. What lies free between
// the blocks that stay is wanted again, whatever lay free at the peak.
static void bursts(const void* unused) {
  (void)unused;
  enum { kLive = 16 << 20, kBursts = 120, kFirst = 40 };
  make_table();
  long before = 0;
  size_t count = 0, live = 0;
  for (int i = 0; i < kBursts; ++i) {
    if (i == kFirst) before = minor_faults();
    for (; live < kLive; live += malloc_usable_size(blocks[count++])) {
      const size_t size = 512 + next_random(&state) % 15873;
      blocks[count] = opaque(malloc(size));
      CHECK(blocks[count] != NULL);
      memset(blocks[count], 1, size);
    }
    for (size_t gone = next_random(&state) % (count / 2); gone != 0; --gone) {
      void** const one = &blocks[next_random(&state) % count];
      live -= malloc_usable_size(*one);
      free(*one);
      *one = blocks[--count];
    }
  }
  const long faults = minor_faults() - before;
  dprintf(2, "faults in %d bursts: %ld\n", kBursts - kFirst, faults);
  CHECK(faults <= (kBursts - kFirst) * 20);
}

// Each thread of a pool has its peak after the others' and waits. To the heap this is one peak that
// comes back, and it keeps the pages, until a trim. What is then left is in the threads' caches.
static void in_turn(const void* unused) {
  (void)unused;
  enum { kThreads = 24, kThreadKib = 64, kOwnKib = 2048 };
  static const Form form = {"in turn", 24 << 20, 16, 1515, kInOrder, 0, false, 0};
  make_table();
  free(opaque(malloc(100)));
  CHECK(pipe(ready) == 0 && pipe(never) == 0);
  const long before = resident_kib();
  for (int i = 0; i < kThreads; ++i) {
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, work, (void*)&form), 0);
    char byte;
    CHECK_EQUAL(read(ready[0], &byte, 1), 1);
  }
  const long held = resident_kib() - before;
  malloc_trim(0);
  const long kept = resident_kib() - before, most = kThreads * kThreadKib + kOwnKib;
  dprintf(2, "%d threads in turn: %ld KiB, %ld after a trim, at most %ld\n", kThreads, held, kept,
          most);
  CHECK(kept <= most);
}

int main(void) {
  for (size_t i = 0; i < sizeof forms / sizeof *forms; ++i) check_in_child(run, &forms[i]);
  check_in_child(survivors, NULL);
  check_in_child(rounds, NULL);
  check_in_child(bursts, NULL);
  check_in_child(in_turn, NULL);
  return 0;
}
