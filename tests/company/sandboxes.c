// A program grows, shrinks and trims inside a sandbox that knows the heap of the C library only.
// Its filter is the list of a well-known program, as far as that list differs for a heap:
//   seven      the system calls that the heap may use after a start (docs/portability.md)
//   eight      clock_gettime as well, in a process with several threads
//   systemd    SystemCallFilter=@system-service (252)
//   ssh92      OpenSSH 9.2, before authentication
//   ssh94      OpenSSH 9.4: the same, with lists of advices and of flags
//   tor, chrony
//   docker     the default profile
// "threads": three threads live before the filter comes, and allocate in it as well.
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kAllow, kAllowEqual, kAllowWithin, kRefuse, kRefuseBeyond };
struct rule {
  long call;
  int kind;
  unsigned argument;  // whose low word is compared
  uint32_t value;     // kAllowEqual: this; kAllowWithin, kRefuseBeyond: bits
  unsigned why;       // errno of a refusal
};
#define ALLOW(name) \
  { SYS_##name, kAllow, 0, 0, 0 }
#define ANY \
  { -1, kAllow, 0, 0, 0 }  // every other call; otherwise it ends the program

#define SEVEN                                                                             \
  ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(mprotect), ALLOW(madvise), \
      ALLOW(futex)
#define END ALLOW(write), ALLOW(exit_group)
static const struct rule seven[] = {SEVEN, END};
static const struct rule eight[] = {SEVEN, ALLOW(clock_gettime), END};

// What the list lacks, beside calls that only the system's administrator makes.
static const struct rule systemd[] = {{SYS_mincore, kRefuse, 0, 0, 0}, ANY};
static const struct rule docker[] = {
    {SYS_userfaultfd, kRefuse, 0, 0, EPERM}, {SYS_process_madvise, kRefuse, 0, 0, EPERM}, ANY};

#define ACCESS (PROT_READ | PROT_WRITE)
#define SSH                                                                                \
  {SYS_mmap, kAllowWithin, 2, ACCESS, 0}, {SYS_mprotect, kAllowWithin, 2, ACCESS, 0},      \
      {SYS_openat, kRefuse, 0, 0, EACCES}, ALLOW(brk), ALLOW(clock_gettime), ALLOW(close), \
      ALLOW(exit), ALLOW(futex), ALLOW(getpid), ALLOW(getrandom), ALLOW(gettimeofday),     \
      ALLOW(mremap), ALLOW(munmap), ALLOW(nanosleep), ALLOW(clock_nanosleep), ALLOW(read), \
      ALLOW(rt_sigprocmask), END
static const struct rule ssh92[] = {ALLOW(madvise), SSH};
static const struct rule ssh94[] = {
    {SYS_madvise, kAllowEqual, 2, MADV_NORMAL, 0},
    {SYS_madvise, kAllowEqual, 2, MADV_FREE, 0},
    {SYS_madvise, kAllowEqual, 2, MADV_DONTNEED, 0},
    {SYS_madvise, kAllowEqual, 2, MADV_DONTFORK, 0},
    {SYS_madvise, kAllowEqual, 2, MADV_DONTDUMP, 0},
    {SYS_madvise, kAllowEqual, 2, MADV_WIPEONFORK, 0},
    {SYS_madvise, kRefuse, 0, 0, EINVAL},
    {SYS_mmap, kRefuseBeyond, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_FIXED_NOREPLACE,
     EINVAL},
    SSH};

#define SIGNALS ALLOW(rt_sigprocmask), ALLOW(rt_sigreturn), ALLOW(set_robust_list)
static const struct rule tor[] = {
    {SYS_mprotect, kAllowEqual, 2, PROT_READ, 0},
    {SYS_mprotect, kAllowEqual, 2, PROT_NONE, 0},
    {SYS_mremap, kAllowEqual, 3, MREMAP_MAYMOVE, 0},
    {SYS_futex, kAllowEqual, 1, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0},
    {SYS_futex, kAllowEqual, 1, FUTEX_WAKE_PRIVATE, 0},
    {SYS_futex, kAllowEqual, 1, FUTEX_WAIT_PRIVATE, 0},
    ALLOW(brk),
    ALLOW(mmap),
    ALLOW(munmap),
    ALLOW(madvise),
    ALLOW(mlockall),
    ALLOW(clock_gettime),
    ALLOW(close),
    ALLOW(clone),
    ALLOW(getpid),
    ALLOW(gettid),
    ALLOW(gettimeofday),
    ALLOW(getrandom),
    ALLOW(nanosleep),
    ALLOW(read),
    ALLOW(sched_yield),
    ALLOW(sched_getaffinity),
    ALLOW(sysinfo),
    ALLOW(uname),
    ALLOW(exit),
    SIGNALS,
    END};
static const struct rule chrony[] = {
    ALLOW(brk),    ALLOW(madvise),   ALLOW(mmap),  ALLOW(mprotect),      ALLOW(mremap),
    ALLOW(munmap), ALLOW(shmdt),     ALLOW(futex), ALLOW(clock_gettime), ALLOW(gettimeofday),
    ALLOW(getpid), ALLOW(getrandom), ALLOW(read),  ALLOW(openat),        ALLOW(close),
    ALLOW(exit),   SIGNALS,          END};

#define LIST(name) \
  { #name, name, sizeof name / sizeof name[0] }
static const struct list {
  const char* name;
  const struct rule* rules;
  unsigned count;
} lists[] = {LIST(seven), LIST(eight), LIST(systemd), LIST(docker),
             LIST(ssh92), LIST(ssh94), LIST(tor),     LIST(chrony)};

static void enter(const struct list* list) {
  struct sock_filter code[256];
  unsigned at = 0;
  const struct sock_filter number =
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  code[at++] = number;
  for (const struct rule* rule = list->rules; rule != list->rules + list->count; ++rule) {
    const struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_filter refuse = BPF_STMT(
        BPF_RET | BPF_K, rule->why != 0 ? SECCOMP_RET_ERRNO | rule->why : SECCOMP_RET_KILL_PROCESS);
    const struct sock_filter argument =
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 (uint32_t)(offsetof(struct seccomp_data, args) + 8 * rule->argument));
    const int compares = rule->kind != kAllow && rule->kind != kRefuse;
    const int masks = compares && rule->kind != kAllowEqual;
    const uint32_t value = masks ? 0 : rule->value;
    if (rule->call >= 0) {
      const struct sock_filter is_call = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)rule->call,
                                                  0, (uint8_t)(compares ? 4 + masks : 1));
      code[at++] = is_call;
    }
    if (compares) code[at++] = argument;
    if (masks) {
      const struct sock_filter mask = BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~rule->value);
      code[at++] = mask;
    }
    if (compares) {
      const int beyond = rule->kind == kRefuseBeyond;
      const struct sock_filter equal =
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, (uint8_t)beyond, (uint8_t)!beyond);
      code[at++] = equal;
    }
    code[at++] = rule->kind == kRefuse || rule->kind == kRefuseBeyond ? refuse : allow;
    if (compares) code[at++] = number;
  }
  const struct sock_filter end = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  code[at++] = end;
  const struct sock_fprog program = {(unsigned short)at, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
    dprintf(1, "skipped: no filters here\n");
    _exit(77);
  }
}

static void check(int good, const char* what) {
  if (good) return;
  const char text[] = "not true: ";
  if (write(2, text, sizeof text - 1) < 0 || write(2, what, strlen(what)) < 0) _exit(2);
  _exit(1);
}
#define CHECK(condition) check(condition, #condition)

enum { kBlocks = 1 << 16, kLong = 6 };

// Each block is twice as long as the one that it replaces.
static void double_a_buffer(void) {
  char* before = NULL;
  for (size_t size = (size_t)2 << 20; size <= (size_t)8 << 20; size *= 2) {
    char* const now = malloc(size);
    CHECK(now != NULL);
    memset(now, 1, (size_t)2 << 20);
    free(before);
    before = now;
  }
  free(before);
}

// Some 90 MiB of small blocks: enough for huge pages. Then long blocks that grow; all of it twice.
static void work(int share) {
  char** const blocks = calloc((size_t)kBlocks, sizeof *blocks);
  CHECK(blocks != NULL);
  for (int round = 0; round < 2; ++round) {
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < kBlocks / share; ++i) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      const size_t size = 16 + random % 2800;
      blocks[i] = malloc(size);
      CHECK(blocks[i] != NULL);
      memset(blocks[i], i, size);
    }
    char* longs[kLong] = {0};
    for (size_t size = 100000; size < (size_t)24 << 20; size += size / 2) {
      for (int i = 0; i < kLong / share; ++i) {
        longs[i] = realloc(longs[i], size + (size_t)i * 5000);
        CHECK(longs[i] != NULL);
        longs[i][0] = longs[i][size - 1] = 1;
      }
    }
    char* const zeros = calloc(20, 1 << 20);
    CHECK(zeros != NULL && zeros[(20 << 20) - 1] == 0);
    void* aligned = NULL;
    CHECK(posix_memalign(&aligned, 1 << 16, 5 << 20) == 0);
    for (int i = 0; i < kLong; ++i) {
      longs[i] = realloc(longs[i], 3 << 20);
      CHECK(longs[i] != NULL);
      free(longs[i]);
    }
    free(zeros);
    free(aligned);
    for (int i = 0; i < kBlocks / share; ++i) free(blocks[i]);
    malloc_trim(0);
  }
  free(blocks);
}

// The library's own heaps, where it is there.
static void work_in_a_heap(void) {
  void* (*create)(const void*) = NULL;
  void* (*take)(void*, size_t) = NULL;
  int (*give)(void*, void*) = NULL;
  int (*destroy)(void*) = NULL;
  *(void**)&create = dlsym(RTLD_DEFAULT, "loam_heap_create");
  *(void**)&take = dlsym(RTLD_DEFAULT, "loam_alloc");
  *(void**)&give = dlsym(RTLD_DEFAULT, "loam_free");
  *(void**)&destroy = dlsym(RTLD_DEFAULT, "loam_heap_destroy");
  if (create == NULL) return;
  void* const heap = create(NULL);
  CHECK(heap != NULL);
  for (int round = 0; round < 3; ++round) {
    void* blocks[2000];
    for (int i = 0; i < 2000; ++i) CHECK((blocks[i] = take(heap, (size_t)i * 9 + 1)) != NULL);
    for (int i = 0; i < 2000; ++i) give(heap, blocks[i]);
  }
  destroy(heap);
}

// A heap that several threads use, with their caches off, and which is walked while they do.
static void* shared;
static int count_block(void* count, const void* entry) {
  (void)entry;
  ++*(long*)count;
  return 0;
}
static void work_in_the_shared_heap(void) {
  if (shared == NULL) return;
  void* (*take)(void*, size_t) = NULL;
  int (*give)(void*, void*) = NULL;
  int (*walk)(void*, int (*)(void*, const void*), void*) = NULL;
  *(void**)&take = dlsym(RTLD_DEFAULT, "loam_alloc");
  *(void**)&give = dlsym(RTLD_DEFAULT, "loam_free");
  *(void**)&walk = dlsym(RTLD_DEFAULT, "loam_walk");
  for (int round = 0; round < 20; ++round) {
    void* blocks[500];
    for (int i = 0; i < 500; ++i) CHECK((blocks[i] = take(shared, (size_t)i * 9 + 1)) != NULL);
    long entries = 0;
    // Another thread may be walking.
    if (walk(shared, &count_block, &entries) == 0) CHECK(entries >= 500);
    for (int i = 0; i < 500; ++i) give(shared, blocks[i]);
  }
}
static void make_the_shared_heap(void) {
  void* (*create)(const void*) = NULL;
  int (*set_threshold)(void*, size_t) = NULL;
  *(void**)&create = dlsym(RTLD_DEFAULT, "loam_heap_create");
  *(void**)&set_threshold = dlsym(RTLD_DEFAULT, "loam_set_small_threshold");
  if (create == NULL) return;
  shared = create(NULL);
  CHECK(shared != NULL && set_threshold(shared, 0) == 0);
}

static atomic_int ready, go, done;

static void* run(void* ignored) {
  free(malloc(100));
  ++ready;
  while (!go) continue;
  work(3);
  work_in_the_shared_heap();
  ++done;
  const int word = 0;
  for (;;) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
  return ignored;
}

int main(int count, char** arguments) {
  const struct list* list = NULL;
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; ++i) {
    if (count > 1 && strcmp(lists[i].name, arguments[1]) == 0) list = &lists[i];
  }
  if (list == NULL) return 2;
  const int threads = count > 2 ? 3 : 0;
  free(malloc(1000));
  dlsym(RTLD_DEFAULT, "loam_heap_create");  // it allocates, and reads what it needs
  if (count > 3) make_the_shared_heap();
  for (int i = 0; i < threads; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, &run, NULL) != 0) return 2;
  }
  while (ready < threads) continue;
  enter(list);
  go = 1;
  double_a_buffer();
  work(threads == 0 ? 1 : 3);
  if (threads == 0) work_in_a_heap();
  work_in_the_shared_heap();
  while (done < threads) continue;
  _exit(0);
}
