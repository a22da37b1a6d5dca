// In a memory cgroup of 64 MiB a program allocates, phase by phase, several times its limit, and
// survives. Freed memory is used again for other sizes. malloc_trim(0) gives it back, for blocks of
// many pages in a row and for other users of the limit (here: the program's own mmap). If the heap
// kept the memory, the kernel would kill the process.
//
// The test needs a writable folder of cgroups, of version 1 or 2.
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"

enum { kLimit = 64 << 20, kAtOnce = 32 << 20, kMost = 1 << 20 };
static void* blocks[kMost];
static char group[512];

static bool put(const char* file, const char* text) {
  char path[600];
  snprintf(path, sizeof path, "%s/%s", group, file);
  const int to = open(path, O_WRONLY | O_CLOEXEC);
  if (to < 0) return false;
  const bool done = write(to, text, strlen(text)) == (ssize_t)strlen(text);
  close(to);
  return done;
}

// Makes a folder for processes, and writes the limit to the file of its version of cgroups.
static bool make_group(const char* parent, const char* limit_file) {
  char limit[32];
  snprintf(limit, sizeof limit, "%d", kLimit);
  snprintf(group, sizeof group, "%s/loam-test-%d", parent, (int)getpid());
  if (mkdir(group, 0700) != 0) return false;
  if (put(limit_file, limit)) return true;
  rmdir(group);
  return false;
}

static bool find_group(void) {
  return make_group("/sys/fs/cgroup/memory", "memory.limit_in_bytes") ||
         make_group("/sys/fs/cgroup", "memory.max");
}

// Runs `body` in the group, and returns the wait status.
static int run_in_group(void (*body)(void)) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    char self[32];
    snprintf(self, sizeof self, "%d", (int)getpid());
    if (!put("cgroup.procs", self)) _exit(77);
    body();
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) CHECK_EQUAL(errno, EINTR);
  return status;
}

static void touch(size_t bytes) {
  char* const area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(area != MAP_FAILED);
  for (size_t at = 0; at < bytes; at += 4096) area[at] = 1;
  CHECK(munmap(area, bytes) == 0);
}

static void take_too_much(void) { touch((size_t)2 * kLimit); }

static int fill(size_t size) {
  const int count = size > kAtOnce ? 1 : (int)(kAtOnce / size);
  CHECK(count <= kMost);
  for (int i = 0; i < count; ++i) {
    blocks[i] = opaque(malloc(size));
    CHECK(blocks[i] != NULL);
    memset(blocks[i], i, size);
  }
  return count;
}

static void thin(int count, int keep_one_in) {
  for (int i = 0; i < count; ++i) {
    if (keep_one_in != 0 && i % keep_one_in == 0) continue;
    free(blocks[i]);
    blocks[i] = NULL;
  }
}

// Sizes differ each time. The program calls only malloc and free.
static void use_again(void) {
  static const size_t kSizes[] = {100, 3000, 50, 200000, 700, 20000, 64};
  for (unsigned round = 0; round < 2 * sizeof kSizes / sizeof *kSizes; ++round) {
    thin(fill(kSizes[round % (sizeof kSizes / sizeof *kSizes)]), 0);
  }
}

// Blocks of many pages in a row may not fit into the memory of smaller ones, so the program trims
// between the phases.
static void trim_between(void) {
  static const size_t kSizes[] = {100, 5 << 20, 3000, 40 << 20, 200000, 33 << 20};
  for (unsigned round = 0; round < 2 * sizeof kSizes / sizeof *kSizes; ++round) {
    thin(fill(kSizes[round % (sizeof kSizes / sizeof *kSizes)]), 0);
    malloc_trim(0);
  }
}

// One block in 512 stays, so none of their spans is empty. The memory between them serves other
// blocks.
static void give_to_others(void) {
  const int count = fill(100);
  thin(count, 512);
  CHECK(malloc_trim(0) == 1);
  touch(kAtOnce);
  for (int i = 0; i < count; i += 512) CHECK(((unsigned char*)blocks[i])[99] == (unsigned char)i);
  thin(count, 0);
  thin(fill(300000), 0);
  malloc_trim(0);
  touch(kAtOnce);
}

int main(void) {
  if (!find_group()) SKIP("no cgroup that limits memory can be made here");
  const int too_much = run_in_group(&take_too_much);
  const int first = run_in_group(&use_again);
  const int second = run_in_group(&trim_between);
  const int third = run_in_group(&give_to_others);
  // A process that has just ended may still be leaving.
  for (int i = 0; i < 100 && rmdir(group) != 0; ++i) usleep(10000);
  if (WIFEXITED(too_much))
    SKIP("the limit of a cgroup is not kept here (swap, or no right to enter it)");
  CHECK_EQUAL(WTERMSIG(too_much), SIGKILL);
  CHECK_EQUAL(first, 0);
  CHECK_EQUAL(second, 0);
  CHECK_EQUAL(third, 0);
  return 0;
}
