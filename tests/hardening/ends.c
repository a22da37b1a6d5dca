// A report ends the process by SIGABRT, and the program's handler of that signal may use the heap:
// it allocates, trims, makes a private heap, reads figures and forks. So no lock is held when the
// signal comes, whatever kind of mistake was found and whatever lock it was found under. A handler
// may also jump out, and the program goes on.
//
// Each kind runs in a child, alone and beside threads that allocate.
#include <loam/loam.h>
#include <loam/stats.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

#include "../preload/check.h"

enum { kDone = 42, kCrowd = 3 };

static loam_heap* heap;
static sigjmp_buf back;
static bool jumps;
// Of threads that are there meanwhile.
static bool quiet;

static void nowhere(void* unused, const char* text, size_t length) {
  (void)unused;
  (void)text;
  (void)length;
}

static void use_every_lock(void) {
  static void* blocks[300];
  for (size_t i = 0; i < 300; ++i) blocks[i] = malloc(i * 977 % 60000 + 1);
  for (size_t i = 0; i < 300; ++i) free(blocks[i]);
  malloc_trim(0);
  loam_stats_print(NULL, nowhere, NULL);
  loam_heap* const other = loam_heap_create(NULL);
  CHECK(other != NULL);
  loam_free(other, loam_alloc(other, 100));
  CHECK_EQUAL(loam_heap_destroy(other), LOAM_OK);
  if (heap != NULL) {
    loam_free(heap, loam_alloc(heap, 100));
    loam_trim(heap);
  }
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(malloc(100) == NULL);
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQUAL(status, 0);
}

static void on_abort(int signal_number) {
  (void)signal_number;
  if (jumps) siglongjmp(back, 1);
  use_every_lock();
  _exit(kDone);
}

static void* churn(void* unused) {
  while (!__atomic_load_n(&quiet, __ATOMIC_RELAXED)) {
    void* blocks[64];
    for (int i = 0; i < 64; ++i) blocks[i] = opaque(malloc(80 + (size_t)i % 3 * 600));
    for (int i = 0; i < 64; ++i) free(blocks[i]);
    if (heap != NULL) loam_free(heap, loam_alloc(heap, 200));
  }
  return unused;
}

// ---- mistakes -----------------------------------------------------------------------------------

static void inside_a_slot(void) {
  free((char*)opaque(malloc(96)) + 16);
  malloc_trim(0);
}
static void twice_after_a_trim(void) {
  void* const block = opaque(malloc(96));
  void* const neighbour = opaque(malloc(96));
  free(block);
  malloc_trim(0);
  free(opaque(block));
  malloc_trim(0);
  free(neighbour);
}
// The span has gone back, so that the pointer is in no block.
static void twice_after_its_span_went(void) {
  static void* blocks[500];
  for (int i = 0; i < 500; ++i) blocks[i] = opaque(malloc(3000));
  for (int i = 0; i < 500; ++i) free(blocks[i]);
  malloc_trim(0);
  free(opaque(blocks[250]));
  malloc_trim(0);
}
// Found by a malloc(): the bin takes its queue of frees when it refills.
static void* free_inside(void* block) {
  free(opaque((char*)block + 16));
  return NULL;
}
static void at_a_threads_end(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, free_inside, opaque(malloc(96))) == 0);
  pthread_join(thread, NULL);
}
// Sparse spans become mixed, and a block of one is freed a second time or in its middle.
static void in_a_mixed_span(size_t offset) {
  enum { kBlocks = 8192 };
  static void* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) blocks[i] = opaque(malloc(256));
  for (int i = 0; i < kBlocks; ++i) {
    if (i % 128 != 43) free(blocks[i]);
  }
  malloc_trim(0);
  for (int i = 0; i < kBlocks; ++i) {
    if (i % 128 != 43) blocks[i] = opaque(malloc(176));
  }
  for (int i = 43; i < kBlocks; i += 128) free((char*)blocks[i] + offset);
  malloc_trim(0);
}
static void inside_a_mixed_block(void) { in_a_mixed_span(16); }
static void large_twice(void) {
  void* const block = opaque(malloc(200000));
  free(block);
  free(opaque(block));
}
static void of_no_block(void) {
  static char data[64] __attribute__((aligned(64)));
  free(opaque(data));
}
static void resized_after_its_end(void) {
  void* const block = opaque(malloc(200000));
  free(block);
  CHECK(realloc(opaque(block), 10) == NULL);
}

static void make_heap(unsigned flags) {
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  options.flags = flags;
  heap = loam_heap_create(&options);
  CHECK(heap != NULL);
}
static void poisoned_in_a_private_heap(void) {
  make_heap(LOAM_HEAP_POISON);
  char* const block = opaque(loam_alloc(heap, 200));
  loam_free(heap, block);
  *(volatile char*)(block + 20) = 1;
  loam_trim(heap);
}
// Reported at the program's end, while the table of heaps is looked through.
static void overrun_in_a_private_heap(void) {
  make_heap(LOAM_HEAP_CANARY);
  char* const block = opaque(loam_alloc(heap, 200));
  *(volatile char*)(block + 200) ^= 1;
}
static void overrun_in_a_heap_that_ends(void) {
  make_heap(LOAM_HEAP_CANARY);
  char* const block = opaque(loam_alloc(heap, 200));
  *(volatile char*)(block + 200) ^= 1;
  loam_heap* const gone = heap;
  heap = NULL;
  loam_heap_destroy(gone);
}

static const struct {
  const char* name;
  void (*make)(void);
  bool alone;    // the report comes only while there is one thread
  bool another;  // in another thread, whose handler can not jump into this one
} kMistakes[] = {
    {"inside a slot", inside_a_slot, false, false},
    {"twice, after a trim", twice_after_a_trim, false, false},
    {"twice, after its span went", twice_after_its_span_went, false, false},
    {"at a thread's end", at_a_threads_end, false, true},
    {"inside a mixed block", inside_a_mixed_block, false, false},
    {"large, twice", large_twice, false, false},
    {"of no block", of_no_block, false, false},
    {"resized after its end", resized_after_its_end, false, false},
    {"poison of a private heap", poisoned_in_a_private_heap, false, false},
    {"canary of a private heap", overrun_in_a_private_heap, true, false},
    {"canary of a heap that ends", overrun_in_a_heap_that_ends, false, false},
};

static int end_of(size_t number, bool crowd, bool leaves) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(open("/dev/null", O_WRONLY), 2);
    alarm(100);  // ends a child that hangs
    signal(SIGABRT, on_abort);
    pthread_t threads[kCrowd];
    for (int i = 0; crowd && i < kCrowd; ++i) pthread_create(&threads[i], NULL, churn, NULL);
    jumps = leaves;
    if (sigsetjmp(back, 1) == 0) {
      kMistakes[number].make();
      quiet = true;
      for (int i = 0; crowd && i < kCrowd; ++i) pthread_join(threads[i], NULL);
      exit(0);
    }
    use_every_lock();
    _exit(kDone);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

int main(void) {
  const char* const mode = getenv("LOAM_ON_CORRUPTION");
  const bool goes_on = mode != NULL && strcmp(mode, "report") == 0;
  int wrong = 0;
  for (size_t i = 0; i < sizeof kMistakes / sizeof kMistakes[0]; ++i) {
    for (int way = 0; way < 3; ++way) {
      const bool crowd = way == 1, leaves = way == 2;
      if ((crowd && kMistakes[i].alone) || (leaves && kMistakes[i].another)) continue;
      const int status = end_of(i, crowd, leaves), wanted = goes_on ? 0 : kDone;
      if (WIFEXITED(status) && WEXITSTATUS(status) == wanted) continue;
      printf("%s%s: status %#x\n", kMistakes[i].name,
             crowd    ? ", beside threads"
             : leaves ? ", and out of the handler"
                      : "",
             (unsigned)status);
      fflush(stdout);
      ++wrong;
    }
  }
  return wrong != 0;
}
