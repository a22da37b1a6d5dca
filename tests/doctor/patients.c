/* Programs with one trouble each, and healthy ones, for the tests of `loam doctor`: patients
 * TROUBLE [SEED].
 *
 * Each program reaches its state, prints "ready" and continues (growing, working or waiting) until
 * it is killed. The first argument names its trouble. The seed changes sizes and orders, so that a
 * rule is tried on many programs and not on one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static unsigned seed = 1;

static unsigned draw(unsigned below) { return (unsigned)rand_r(&seed) % below; }

/* A block that is written to. */
static void* block(size_t bytes) {
  void* found = malloc(bytes);
  if (!found) abort();
  return memset(found, 1, bytes);
}

static void ready(void) {
  puts("ready");
  fflush(stdout);
}

static void rest(unsigned milliseconds) {
  struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
  nanosleep(&time, NULL);
}

static void wait_for_ever(void) {
  for (;;) pause();
}

/* Allocates this much in blocks of mixed sizes, and never frees it. */
static void hold(size_t bytes) {
  for (size_t sum = 0; sum < bytes;) {
    size_t size = 24 + draw(draw(8) ? 500 : 8000);
    *(volatile char*)block(size) = 2;
    sum += size;
  }
}

/* ---- Sick programs ------------------------------------------------------------------------- */

static void leak_slowly(void) {
  hold(20 * MIB);
  ready();
  for (;; rest(10)) {
    for (int i = 0; i < 40; i++) block(100 + draw(200));
    for (int i = 0; i < 100; i++) free(block(24 + draw(3000)));
  }
}

static void leak_in_bursts(void) {
  hold(20 * MIB);
  ready();
  for (;; rest(1200)) {
    void* some[2000];
    for (int i = 0; i < 2000; i++) some[i] = block(100 + draw(1000));
    /* One block in three is forgotten. */
    for (int i = 0; i < 2000; i++) {
      if (i % 3) free(some[i]);
    }
  }
}

/* A quarter of the blocks stays, small enough that every page keeps one. */
static void fragment(void) {
  size_t count = 160 * MIB / 250;
  void** all = malloc(count * sizeof *all);
  for (size_t i = 0; i < count; i++) all[i] = block(100 + draw(300));
  for (size_t i = 0; i < count; i++) {
    if (i % 4) free(all[i]);
  }
  ready();
  wait_for_ever();
}

/* The same where `brk` is refused: the main arena continues in mappings, among other ones. */
static void fragment_in_mappings(void) {
  size_t count = 100 * MIB / 250;
  uintptr_t end = ((uintptr_t)sbrk(0) + 4095) & ~(uintptr_t)4095;
  mmap((void*)end, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  void** all = malloc(count * sizeof *all);
  for (size_t i = 0; i < count; i++) {
    all[i] = block(100 + draw(300));
    if (i % 6000 == 0) {
      mmap(NULL, 4096, i % 12000 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
  }
  for (size_t i = 0; i < count; i++) {
    if (i % 4) free(all[i]);
  }
  ready();
  wait_for_ever();
}

/* The same in a second C library, which plug-ins in a namespace of their own bring along. */
static void fragment_in_second_library(void) {
  size_t count = 100 * MIB / 250;
  void* library = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
  if (!library) abort();
  void* (*allocate)(size_t) = (void* (*)(size_t))dlsym(library, "malloc");
  void (*release)(void*) = (void (*)(void*))dlsym(library, "free");
  hold(MIB);
  void** all = malloc(count * sizeof *all);
  for (size_t i = 0; i < count; i++) {
    size_t size = 100 + draw(300);
    all[i] = memset(allocate(size), 1, size);
  }
  for (size_t i = 0; i < count; i++) {
    if (i % 4) release(all[i]);
  }
  ready();
  wait_for_ever();
}

/* The peak is over, and scattered blocks keep the heap long. */
static void keep(void) {
  size_t count = 160 * MIB / 20000;
  void** all = malloc(count * sizeof *all);
  for (size_t i = 0; i < count; i++) all[i] = block(8000 + draw(24000));
  for (size_t i = 0; i < count; i++) {
    if (i % 5) free(all[i]);
  }
  ready();
  wait_for_ever();
}

/* Three large blocks in turn, and then silence. Loam keeps the mapping of the last one. */
static void keep_a_mapping(void) {
  hold(8 * MIB);
  for (int i = 0; i < 4; i++) free(block(40 * MIB));
  ready();
  wait_for_ever();
}

static void pin_the_top(void) {
  size_t count = 80 * MIB / 250;
  void** all = malloc(count * sizeof *all);
  for (size_t i = 0; i < count; i++) all[i] = block(100 + draw(300));
  void* last = block(100 + draw(1000));
  for (size_t i = 0; i < count; i++) free(all[i]);
  free(all);
  ready();
  wait_for_ever();
  free(last);
}

static pthread_barrier_t met;

/* A thread that once had a peak. */
static void* peak(void* argument) {
  unsigned its = *(unsigned*)argument;
  size_t count = 2000 + (size_t)rand_r(&its) % 500;
  void** all = malloc(count * sizeof *all);
  for (size_t i = 0; i < count; i++) all[i] = block(500 + (size_t)rand_r(&its) % 3000);
  /* The blocks that stay are at the end of the arena. */
  for (size_t i = 0; i + 20 < count; i++) free(all[i]);
  pthread_barrier_wait(&met);
  wait_for_ever();
  return NULL;
}

static void strand_arenas(void) {
  enum { THREADS = 40 };
  static unsigned seeds[THREADS];
  pthread_barrier_init(&met, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++) {
    pthread_t thread;
    seeds[i] = draw(1u << 30);
    if (pthread_create(&thread, NULL, peak, &seeds[i])) abort();
  }
  pthread_barrier_wait(&met);
  ready();
  wait_for_ever();
}

/* Freed blocks that only fast bins and threads' caches hold. They are small, and no large request
 * follows their frees. */
static void cache(void) {
  size_t count = 60 * MIB / 100;
  void** all =
      mmap(NULL, count * sizeof *all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (size_t i = 0; i < count; i++) all[i] = block(60 + draw(44));
  for (size_t i = 0; i < count; i++) {
    if (i % 7) free(all[i]);
  }
  munmap(all, count * sizeof *all);
  ready();
  wait_for_ever();
}

static char* map(size_t bytes) {
  char* found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) abort();
  return found;
}

static void free_lazily(void) {
  hold(10 * MIB);
  /* In several mappings, since the kernel would hold up the program for too long with one. A page
     between them keeps the kernel from joining them. */
  for (int i = 0; i < 4; i++) {
    size_t bytes = (15 + draw(15)) * MIB;
    char* memory = map(bytes + 4096);
    if (mprotect(memory + bytes, 4096, PROT_NONE)) abort();
    memset(memory, 1, bytes);
    if (madvise(memory, bytes, MADV_FREE)) abort();
  }
  ready();
  wait_for_ever();
}

/* A heap that was trimmed and then filled again by huge pages. MADV_COLLAPSE does at once what the
   kernel's khugepaged does in minutes. The kernel may refuse it. */
static void huge_pages(void) {
  const uintptr_t huge = 2 * MIB;
  size_t count = 100 * MIB / 2000;
  void** all = malloc(count * sizeof *all);
  for (size_t i = 0; i < count; i++) all[i] = block(1500 + draw(1000));
  for (size_t i = 0; i < count; i++) {
    if (i % 10) free(all[i]);
  }
  malloc_trim(0);
  uintptr_t first = ((uintptr_t)all[0] + huge - 1) / huge * huge;
  uintptr_t last = (uintptr_t)sbrk(0) / huge * huge;
  if (madvise((void*)first, last - first, MADV_HUGEPAGE)) perror("MADV_HUGEPAGE");
  if (madvise((void*)first, last - first, 25 /* MADV_COLLAPSE */)) perror("MADV_COLLAPSE");
  ready();
  wait_for_ever();
}

static void hold_untouched(void) {
  hold(10 * MIB);
  for (int i = 0; i < 40; i++) {
    char* buffer = malloc((1 + draw(8)) * MIB);
    *(volatile char*)buffer = 1;
  }
  ready();
  wait_for_ever();
}

static void map_files(void) {
  hold(10 * MIB);
  FILE* file = tmpfile();
  size_t bytes = (60 + draw(60)) * MIB;
  if (!file || ftruncate(fileno(file), (off_t)bytes)) abort();
  char* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  if (memory == MAP_FAILED) abort();
  for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
  ready();
  wait_for_ever();
}

static void swell_outside(void) {
  hold(20 * MIB);
  ready();
  for (;; rest(10)) {
    size_t bytes = (2 + draw(4)) << 13;
    memset(map(bytes), 1, bytes);
    for (int i = 0; i < 100; i++) free(block(24 + draw(3000)));
  }
}

/* Another process shares all memory from now on, and ends with this one. */
static void share(void) {
  pid_t parent = getpid();
  pid_t child = fork();
  if (child < 0) abort();
  if (child > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  while (getppid() == parent) rest(1000);
  _exit(0);
}

/* Writes to memory that another process shares, page by page. */
static void copy_what_is_shared(void) {
  /* It lasts longer than any watch on a busy machine. */
  enum { COUNT = 20000 };
  static char* all[COUNT];
  for (int i = 0; i < COUNT; i++) all[i] = block(8000);
  share();
  ready();
  for (int i = 0; i < COUNT; i++) {
    all[i][0] = 3;
    if (i % 2 == 0) rest(10);
  }
  wait_for_ever();
}

static void* end_at_once(void* argument) { return argument; }

static void join_no_thread(void) {
  hold(MIB);
  for (int i = 0; i < 500; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_at_once, NULL)) abort();
  }
  rest(500);
  ready();
  wait_for_ever();
}

/* Files in memory that are open and not mapped. */
static void hold_files(void) {
  static char some[MIB];
  hold(10 * MIB);
  memset(some, 1, sizeof some);
  for (int i = 0; i < 4; i++) {
    int file = memfd_create("held", 0);
    for (int n = 0; n < 15; n++) {
      if (write(file, some, sizeof some) != (ssize_t)sizeof some) abort();
    }
  }
  ready();
  wait_for_ever();
}

/* Large blocks of malloc and mappings of the program, which the kernel joins with each other. */
static void leak_among_mappings(void) {
  hold(10 * MIB);
  ready();
  for (;; rest(100)) {
    for (int i = 0; i < 2; i++) {
      memset(map(64 << 10), 1, 64 << 10);
      block((200 << 10) + draw(1000));
    }
  }
}

/* Loses blocks of this size, 20 MiB a second, among small ones that come and go. */
static void leak_large(size_t bytes) {
  hold(20 * MIB);
  ready();
  for (size_t owed = 0;; rest(20)) {
    for (owed += 400 << 10; owed >= bytes; owed -= bytes) block(bytes - draw(4096));
    for (int i = 0; i < 100; i++) free(block(24 + draw(3000)));
  }
}

static void leak_wide(void) { leak_large(200000); }
static void leak_sheets(void) { leak_large(2 * MIB); }

static int idlers;
static void* idle(void* argument) {
  __atomic_add_fetch(&idlers, 1, __ATOMIC_RELAXED);
  pause();
  return argument;
}

/* Each thread's whole stack is resident at once. */
static void lock_all(void) {
  hold(10 * MIB);
  if (mlockall(MCL_CURRENT | MCL_FUTURE)) abort();
  for (int i = 0; i < 16; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, idle, NULL)) abort();
  }
  while (__atomic_load_n(&idlers, __ATOMIC_RELAXED) < 16) rest(10);
  rest(200);
  ready();
  wait_for_ever();
}

/* The first heap of glibc can not grow in its place, and goes on in mappings. */
static void fragment_in_place_of_brk(void) {
  const uintptr_t end = ((uintptr_t)sbrk(0) + 4095) & ~(uintptr_t)4095;
  void* wall = (void*)(end + 256 * 1024);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  if (mmap(wall, 4096, PROT_NONE, flags, -1, 0) != wall) abort();
  fragment();
}

/* ---- Healthy programs ---------------------------------------------------------------------- */

/* Replaces its blocks for ever. */
static void churn(void) {
  enum { COUNT = 60000 };
  static void* all[COUNT];
  for (int i = 0; i < COUNT; i++) all[i] = block(24 + draw(1000));
  ready();
  for (;; rest(1)) {
    for (int n = 0; n < 2000; n++) {
      int i = (int)draw(COUNT);
      free(all[i]);
      all[i] = block(24 + draw(1000));
    }
  }
}

/* Its use rises and falls. */
static void breathe(void) {
  enum { COUNT = 20000 };
  static void* all[COUNT];
  hold(30 * MIB);
  ready();
  for (;;) {
    for (int i = 0; i < COUNT; i++) all[i] = block(24 + draw(1000));
    rest(150);
    for (int i = 0; i < COUNT; i++) free(all[i]);
    rest(150);
  }
}

/* Fills a cache up to its bound, and stays there. */
static void fill_a_cache(void) {
  hold(70 * MIB);
  ready();
  for (;; rest(5)) {
    for (int i = 0; i < 100; i++) free(block(100 + draw(100)));
  }
}

/* Keeps free pages, and another process has them too: it gains nothing by giving them back. */
static void keep_what_is_shared(void) {
  size_t count = 100 * MIB / 20000;
  void** all = malloc(count * sizeof *all);
  for (size_t i = 0; i < count; i++) all[i] = block(8000 + draw(24000));
  for (size_t i = 0; i < count; i++) {
    if (i % 5) free(all[i]);
  }
  share();
  ready();
  wait_for_ever();
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A pool of its own that fills, ever more slowly. */
static void fill_a_pool(void) {
  const size_t page = 4096;
  hold(20 * MIB);
  ready();
  size_t filled = 0;
  for (double begun = seconds();; rest(20)) {
    double since = seconds() - begun;
    double wanted = 40.0 * (double)MIB * since / (since + 1.5);
    size_t more = ((size_t)wanted - filled) / page * page;
    if (more) memset(map(more), 1, more);
    filled += more;
  }
}

/* Touches memory page by page, 2 MiB a second. */
static void touch_slowly(volatile char* memory, size_t bytes, int is_written) {
  ready();
  for (size_t at = 0; at < bytes; at += 4096) {
    if (is_written) memory[at] = 1;
    (void)memory[at];
    if (at / 4096 % 5 == 0) rest(10);
  }
  wait_for_ever();
}

static void read_a_file(void) {
  size_t bytes = 256 * MIB;
  FILE* file = tmpfile();
  hold(20 * MIB);
  if (!file || ftruncate(fileno(file), (off_t)bytes)) abort();
  char* memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fileno(file), 0);
  if (memory == MAP_FAILED) abort();
  touch_slowly(memory, bytes, 0);
}

static void fill_shared_memory(void) {
  size_t bytes = 256 * MIB;
  hold(20 * MIB);
  char* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  touch_slowly(memory, bytes, 1);
}

static ucontext_t home;

static void run_fiber(void) {
  ready();
  wait_for_ever();
}

/* A pool of fibers' stacks in one mapping, on one of which the only thread runs. */
static void swap_fibers(void) {
  enum { EACH = 64 << 10, COUNT = 2000 };
  static ucontext_t fiber;
  char* pool = map((size_t)EACH * COUNT);
  hold(60 * MIB);
  for (size_t i = 0; i < COUNT; i++) memset(pool + i * EACH + EACH - 8192, 1, 8192);
  if (getcontext(&fiber)) abort();
  fiber.uc_stack.ss_sp = pool + (size_t)EACH * 100;
  fiber.uc_stack.ss_size = EACH;
  makecontext(&fiber, run_fiber, 0);
  swapcontext(&home, &fiber);
}

static void hold_and_wait(void) {
  hold((20 + draw(100)) * MIB);
  ready();
  wait_for_ever();
}

static void be_small(void) {
  hold(100000);
  ready();
  wait_for_ever();
}

static void large_buffers(void) {
  for (int i = 0; i < 12; i++) block((2 + draw(10)) * MIB);
  ready();
  for (;; rest(20)) free(block(MIB + draw(4 * MIB)));
}

static void* work(void* argument) {
  unsigned its = *(unsigned*)argument;
  enum { COUNT = 3000 };
  void** all = calloc(COUNT, sizeof *all);
  for (unsigned long n = 0;; n++) {
    int i = rand_r(&its) % COUNT;
    free(all[i]);
    all[i] = block(24 + (size_t)rand_r(&its) % 2000);
    if (n == 4 * COUNT) pthread_barrier_wait(&met);
    if (n > 4 * COUNT && n % 300 == 0) rest(2);
  }
  return NULL;
}

static void threads(void) {
  enum { THREADS = 8 };
  static unsigned seeds[THREADS];
  hold(20 * MIB);
  pthread_barrier_init(&met, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++) {
    pthread_t thread;
    seeds[i] = draw(1u << 30);
    if (pthread_create(&thread, NULL, work, &seeds[i])) abort();
  }
  pthread_barrier_wait(&met);
  ready();
  wait_for_ever();
}

static const struct {
  const char* name;
  void (*run)(void);
} patients[] = {
    {"leak", leak_slowly},
    {"bursts", leak_in_bursts},
    {"fragment", fragment},
    {"scattered", fragment_in_mappings},
    {"second", fragment_in_second_library},
    {"keep", keep},
    {"pin", pin_the_top},
    {"arenas", strand_arenas},
    {"cache", cache},
    {"lazy", free_lazily},
    {"huge", huge_pages},
    {"untouched", hold_untouched},
    {"files", map_files},
    {"outside", swell_outside},
    {"churn", churn},
    {"breathe", breathe},
    {"bounded", fill_a_cache},
    {"wait", hold_and_wait},
    {"small", be_small},
    {"buffers", large_buffers},
    {"threads", threads},
    {"mapping", keep_a_mapping},
    {"copies", copy_what_is_shared},
    {"stacks", join_no_thread},
    {"memfd", hold_files},
    {"mixed", leak_among_mappings},
    {"wide", leak_wide},
    {"sheets", leak_sheets},
    {"locked", lock_all},
    {"refused", fragment_in_place_of_brk},
    {"fibers", swap_fibers},
    {"forked", keep_what_is_shared},
    {"fills", fill_a_pool},
    {"reads", read_a_file},
    {"shares", fill_shared_memory},
};

int main(int count, char** words) {
  static char line[64];
  setvbuf(stdout, line, _IOLBF, sizeof line);
  if (count > 2) seed = (unsigned)atoi(words[2]);
  for (size_t i = 0; count > 1 && i < sizeof patients / sizeof *patients; i++) {
    if (!strcmp(words[1], patients[i].name)) patients[i].run();
  }
  fprintf(stderr, "usage: patients TROUBLE [SEED]; troubles:");
  for (size_t i = 0; i < sizeof patients / sizeof *patients; i++)
    fprintf(stderr, " %s", patients[i].name);
  fputs("\n", stderr);
  return 2;
}
