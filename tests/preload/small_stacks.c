// Every call of the heap needs only a small stack, as glibc's do (mallinfo2() took 25 KB,
// malloc_info() 57). A program with many threads gives each only PTHREAD_STACK_MIN. Each call runs
// on a painted stack, which shows how deep it went. Then threads with the least stack make all
// calls.
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "check.h"

#include <loam/loam.h>
#include <loam/stats.h>

enum {
  kStack = 256 << 10,
  // The most that a call may take, in bytes. glibc's malloc_info() takes 6.3 KB, its malloc_stats()
  // 10.
  // Which way a call goes depends on what other threads and reports left behind. The longest way
  // has the tables of a sealed span on the stack, 2 KB, and was 2,400 bytes deep in thousands of
  // runs.
  kCall = 11 << 8,  // 2.75 KB
  kTable = 7 << 9,  // calls that fill a table of counters: 3.5 KB
  kText = 9 << 9,   // calls that write text: 4.5 KB
};

static void* kept[3000];
static FILE* nowhere;

// The library's own calls, absent from the system's malloc.
#define OWN(result, name, ...) result (*own_##name)(__VA_ARGS__)
static OWN(loam_heap*, loam_heap_create, const loam_heap_options*);
static OWN(loam_status, loam_heap_destroy, loam_heap*);
static OWN(loam_heap*, loam_default, void);
static OWN(size_t, loam_heaps, loam_heap**, size_t);
static OWN(loam_heap*, loam_heap_of, const void*);
static OWN(void*, loam_alloc, loam_heap*, size_t);
static OWN(void*, loam_aligned_alloc, loam_heap*, size_t, size_t);
static OWN(void*, loam_realloc, loam_heap*, void*, size_t);
static OWN(loam_status, loam_free, loam_heap*, void*);
static OWN(loam_status, loam_validate, loam_heap*, const void*);
static OWN(loam_status, loam_walk, loam_heap*, loam_walk_callback, void*);
static OWN(loam_status, loam_summary, loam_heap*, loam_heap_summary*);
static OWN(size_t, loam_compact, loam_heap*, size_t*);
static OWN(loam_status, loam_trim, loam_heap*);
static OWN(loam_status, loam_stats, loam_heap*, struct loam_stats*);
static OWN(unsigned, loam_class_count, void);
static OWN(loam_status, loam_class_stats, loam_heap*, unsigned, struct loam_class_stats*);
static OWN(loam_status, loam_lock_stats, unsigned, struct loam_lock_stats*);
static OWN(unsigned, loam_stats_histogram, loam_histogram, uint64_t*, unsigned);
static OWN(loam_status, loam_stats_json, loam_heap*, loam_stats_writer, void*);
static OWN(loam_status, loam_stats_print, loam_heap*, loam_stats_writer, void*);
static OWN(int, loam_win32_HeapSummary, void*, unsigned, void*);
static OWN(int, loam_win32_HeapWalk, void*, void*);
static OWN(int, loam_win32_HeapValidate, void*, unsigned, const void*);
static OWN(size_t, loam_win32_HeapCompact, void*, unsigned);
static OWN(void*, loam_win32_GetProcessHeap, void);
static OWN(int, loam_win32_heapchk, void);

static void find_own(void) {
#define FIND(name) *(void**)&own_##name = dlsym(RTLD_DEFAULT, #name)
  FIND(loam_heap_create);
  FIND(loam_heap_destroy);
  FIND(loam_default);
  FIND(loam_heaps);
  FIND(loam_heap_of);
  FIND(loam_alloc);
  FIND(loam_aligned_alloc);
  FIND(loam_realloc);
  FIND(loam_free);
  FIND(loam_validate);
  FIND(loam_walk);
  FIND(loam_summary);
  FIND(loam_compact);
  FIND(loam_trim);
  FIND(loam_stats);
  FIND(loam_class_count);
  FIND(loam_class_stats);
  FIND(loam_lock_stats);
  FIND(loam_stats_histogram);
  FIND(loam_stats_json);
  FIND(loam_stats_print);
  FIND(loam_win32_HeapSummary);
  FIND(loam_win32_HeapWalk);
  FIND(loam_win32_HeapValidate);
  FIND(loam_win32_HeapCompact);
  FIND(loam_win32_GetProcessHeap);
  FIND(loam_win32_heapchk);
}

static loam_heap* private_heap;
static struct loam_stats counters;
static struct loam_class_stats of_class;
static struct loam_lock_stats of_lock;
static loam_heap_summary summary;
static uint64_t bins[64];
static char entry[4096] __attribute__((aligned(16)));  // of Win32, whatever its size
static void drop(void* context, const char* text, size_t length) {
  (void)context, (void)text, (void)length;
}
static int look(void* context, const loam_walk_entry* at) {
  (void)context, (void)at;
  return 0;
}

static void nothing(void) {}
static void small(void) {
  for (size_t i = 0; i < 3000; ++i) kept[i] = malloc(i * 7);
  for (size_t i = 0; i < 3000; ++i) free(kept[i]);
}
static void large(void) {
  for (size_t i = 0; i < 50; ++i) kept[i] = calloc(1, (i + 1) * 100000);
  for (size_t i = 0; i < 50; ++i) free(kept[i]);
}
static void grows(void) {
  void* p = NULL;
  for (size_t n = 10; n < (size_t)40 << 20; n += n / 3 + 1) p = realloc(p, n);
  free(p);
}
static void aligned(void) {
  for (size_t i = 0; i < 200; ++i) {
    void* p = NULL;
    if (posix_memalign(&p, (size_t)64 << i % 12, 5000) == 0) free(p);
  }
}
static void trim(void) { malloc_trim(0); }
static void usable(void) {
  kept[1] = malloc(10);
  kept[0] = (void*)malloc_usable_size(kept[1]);
  free(kept[1]);
}
static void info2(void) { kept[0] = (void*)mallinfo2().uordblks; }
static void info(void) { kept[0] = (void*)(size_t)(unsigned)mallinfo().uordblks; }
static void text(void) { malloc_info(0, nowhere); }
static void to_stderr(void) { malloc_stats(); }
static void forks(void) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
}
// Only for LOAM_ON_CORRUPTION=report, with which the program continues.
static void wild(void) {
  if (getenv("LOAM_ON_CORRUPTION") == NULL) return;
  char* p = malloc(100);
  free(p + 8);
  free(p);
}

static void own_blocks(void) {
  for (size_t i = 0; i < 1000; ++i) kept[i] = own_loam_alloc(private_heap, i * 40);
  for (size_t i = 0; i < 1000; ++i) kept[i] = own_loam_realloc(private_heap, kept[i], i * 60);
  for (size_t i = 0; i < 1000; ++i) own_loam_free(private_heap, kept[i]);
  kept[0] = own_loam_aligned_alloc(private_heap, 4096, 5000);
  kept[1] = own_loam_heap_of(kept[0]);
  own_loam_free(private_heap, kept[0]);
}
static void own_create(void) { own_loam_heap_destroy(own_loam_heap_create(NULL)); }
static void own_list(void) { own_loam_heaps((loam_heap**)kept, 100); }
static void own_check(void) {
  own_loam_validate(private_heap, NULL);
  own_loam_validate(own_loam_default(), NULL);
}
static void own_walk(void) {
  own_loam_walk(private_heap, look, NULL);
  own_loam_walk(own_loam_default(), look, NULL);
}
static void own_summary(void) {
  summary.size = sizeof summary;
  own_loam_summary(private_heap, &summary);
  own_loam_summary(own_loam_default(), &summary);
}
static void own_compact(void) {
  size_t released;
  own_loam_compact(NULL, &released);
  own_loam_trim(private_heap);
}
static void own_stats(void) {
  counters.size = sizeof counters;
  own_loam_stats(NULL, &counters);
  own_loam_stats(private_heap, &counters);
  own_loam_stats(own_loam_default(), &counters);
}
static void own_classes(void) {
  of_class.size = sizeof of_class;
  const unsigned classes = own_loam_class_count();
  for (unsigned i = 0; i < classes; ++i) {
    own_loam_class_stats(NULL, i, &of_class);
    own_loam_class_stats(private_heap, i, &of_class);
  }
}
static void own_locks(void) {
  of_lock.size = sizeof of_lock;
  for (unsigned i = 0; own_loam_lock_stats(i, &of_lock) == LOAM_OK; ++i) {
  }
}
static void own_histograms(void) {
  for (int i = LOAM_FREE_RUNS; i <= LOAM_FREE_TIME; ++i)
    own_loam_stats_histogram((loam_histogram)i, bins, 64);
}
static void own_json(void) {
  own_loam_stats_json(NULL, drop, NULL);
  own_loam_stats_json(private_heap, drop, NULL);
}
static void own_print(void) { own_loam_stats_print(NULL, drop, NULL); }
static void win_summary(void) {
  *(unsigned*)entry = 40;  // HEAP_SUMMARY.cb
  own_loam_win32_HeapSummary(own_loam_win32_GetProcessHeap(), 0, entry);
}
static void win_walk(void) {
  memset(entry, 0, sizeof entry);
  while (own_loam_win32_HeapWalk(own_loam_win32_GetProcessHeap(), entry)) {
  }
}
static void win_check(void) {
  own_loam_win32_HeapValidate(own_loam_win32_GetProcessHeap(), 0, NULL);
  own_loam_win32_heapchk();
}
static void win_compact(void) { own_loam_win32_HeapCompact(own_loam_win32_GetProcessHeap(), 0); }

static const struct {
  const char* name;
  void (*call)(void);
  size_t limit;
  bool own;
} calls[] = {
    {"malloc, free", small, kCall, false},
    {"large blocks", large, kCall, false},
    {"realloc", grows, kCall, false},
    {"aligned", aligned, kCall, false},
    {"malloc_trim", trim, kCall, false},
    {"usable size", usable, kCall, false},
    {"mallinfo2", info2, kCall, false},
    {"mallinfo", info, kCall, false},
    {"malloc_info", text, kText, false},
    {"malloc_stats", to_stderr, kText, false},
    {"fork", forks, kCall, false},
    {"loam_alloc and others", own_blocks, kCall, true},
    {"loam_heap_create", own_create, kCall, true},
    {"loam_heaps", own_list, kCall, true},
    {"loam_validate", own_check, kTable, true},
    {"loam_walk", own_walk, kCall, true},
    {"loam_summary", own_summary, kCall, true},
    {"loam_compact", own_compact, kTable, true},
    {"loam_stats", own_stats, kTable, true},
    {"loam_class_stats", own_classes, kTable, true},
    {"loam_lock_stats", own_locks, kCall, true},
    {"loam_stats_histogram", own_histograms, kTable, true},
    {"loam_stats_json", own_json, kText, true},
    {"loam_stats_print", own_print, kText, true},
    {"HeapSummary", win_summary, kCall, true},
    {"HeapWalk", win_walk, kCall, true},
    {"HeapValidate", win_check, kTable, true},
    {"HeapCompact", win_compact, kTable, true},
    {"a report of misuse", wild, kText, true},
};
enum { kCalls = sizeof calls / sizeof *calls };

static ucontext_t home, there;
static void (*body)(void);
static void run_body(void) { body(); }

static size_t depth(void (*what)(void)) {
  unsigned char* const stack =
      mmap(NULL, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(stack != MAP_FAILED);
  memset(stack, 0x5A, kStack);
  getcontext(&there);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = kStack;
  there.uc_link = &home;
  body = what;
  makecontext(&there, run_body, 0);
  swapcontext(&home, &there);
  size_t untouched = 0;
  while (untouched < kStack && stack[untouched] == 0x5A) ++untouched;
  munmap(stack, kStack);
  return kStack - untouched;
}

static bool may_run(int i) { return !calls[i].own || own_loam_stats != NULL; }

static void* call_all(void* unused) {
  (void)unused;
  for (int i = 0; i < kCalls; ++i) {
    if (may_run(i)) calls[i].call();
  }
  return malloc(10);
}

static size_t first_depth;
static void* first_calls(void* unused) {
  (void)unused;
  first_depth = depth(small);
  return NULL;
}

int main(void) {
  find_own();
  signal(SIGCHLD, SIG_IGN);
  nowhere = fopen("/dev/null", "w");
  CHECK(nowhere != NULL && dup2(open("/dev/null", O_WRONLY), 2) == 2);
  if (own_loam_stats != NULL) private_heap = own_loam_heap_create(NULL);
  depth(nothing);
  const size_t base = depth(nothing);
  bool deep = false;
  for (int i = 0; i < kCalls; ++i) {
    if (!may_run(i)) continue;
    depth(calls[i].call);  // the dynamic linker resolves names on the caller's stack, once
    const size_t used = depth(calls[i].call) - base;
    printf("%-24s %zu of %zu\n", calls[i].name, used, calls[i].limit);
    deep |= used > calls[i].limit;
  }
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, first_calls, NULL) == 0 && pthread_join(thread, NULL) == 0);
  printf("%-24s %zu of %d\n", "a thread's first calls", first_depth - base, kCall);
  deep |= first_depth - base > kCall;
  fflush(stdout);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
  for (int i = 0; i < 10; ++i) {
    void* block = NULL;
    CHECK(pthread_create(&thread, &attributes, call_all, NULL) == 0 &&
          pthread_join(thread, &block) == 0);
    free(block);
  }
  return own_loam_stats != NULL && deep;  // the limits are of this heap
}
