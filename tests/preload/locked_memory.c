// Programs that lock their memory (hardened_malloc#341, corosync#620). Live memory is locked.
// Memory that the heap has only reserved is not, and does not count against RLIMIT_MEMLOCK. This
// holds whenever and however mlockall() was called. VmLck shows it.
#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

enum { kNobody = 65534, kMib = 1 << 20 };

static long status_kib(const char* name) {
  static char text[1 << 13];
  CHECK(proc_text("/proc/self/status", text, sizeof text) > 0);
  const char* const line = strstr(text, name);
  CHECK(line != NULL);
  return atol(line + strlen(name));
}
static long locked_kib(void) { return status_kib("VmLck:"); }

static int lock_all(int flags, bool directly) {
  // Programs in other languages, and those that look the call up in the C library by a handle, do
  // not use our name.
  return directly ? (int)syscall(SYS_mlockall, flags) : mlockall(flags);
}

// Runs it in a process of its own and returns its exit status.
static int in_child(int (*body)(int), int argument) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(body(argument));
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status);
}

enum { kOnFault = 1, kCurrent = 2, kEarly = 4, kDirectly = 8, kVariants = 16 };

// Locks as a program that starts: by exec, because a child of fork() already has a heap.
static int live_is_locked(int variant) {
  if (variant & kEarly) free(malloc(1000));
  const int flags =
      MCL_FUTURE | (variant & kOnFault ? MCL_ONFAULT : 0) | (variant & kCurrent ? MCL_CURRENT : 0);
  if (lock_all(flags, variant & kDirectly) != 0) return 77;
  const long before = locked_kib();
  static char* blocks[2000];
  long live = 0;
  for (int i = 0; i < 2000; ++i) {
    const size_t bytes = (size_t)(i % 50) * 1000 + 1;
    CHECK((blocks[i] = malloc(bytes)) != NULL);
    memset(blocks[i], 1, bytes);
    live += (long)bytes;
  }
  char* big = malloc(30 * kMib);
  CHECK(big != NULL);
  memset(big, 1, 30 * kMib);
  CHECK((big = realloc(big, 60 * kMib)) != NULL && big[30 * kMib - 1] == 1 &&
        big[60 * kMib - 1] == 0);
  live = (live + 60 * kMib) >> 10;
  const long grown = locked_kib() - before;
  dprintf(2, "variant %d: %ld KiB locked before, %ld more for %ld live\n", variant, before, grown,
          live);
  // Without MCL_CURRENT earlier memory is not locked: up to 2 MiB.
  const long least = live - live / 8 - 4096, most = live + live / 8 + 4096;
  const bool too_much =
      // Reserved before the heap could know of the lock; it is released as the heap grows
      before > 20 << 10;
  if (too_much && !(variant & kDirectly)) return 1;
  if (too_much ? before + grown > most + (12 << 10) : grown < least || grown > most) return 1;
  for (int i = 0; i < 2000; ++i) free(blocks[i]);
  free(big);
  malloc_trim(0);
  const long after = locked_kib();
  dprintf(2, "variant %d: %ld KiB at the end\n", variant, after);
  // The quarantine and the heap's own thread hold blocks at the end of the mapped memory, so the
  // memory before them may stay: that of all small blocks, but not of the large one.
  const bool holds = getenv("LOAM_HARDEN") != NULL || getenv("LOAM_BACKGROUND_PURGE") != NULL;
  return after > (holds ? 52 << 10 : 12 << 10) ? 1 : 0;
}

static int used_within_limit(int early) {
  const struct rlimit limit = {8 * kMib, 8 * kMib};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setgroups(0, NULL) != 0 || setgid(kNobody) != 0)
    return 77;
  if (setuid(kNobody) != 0) return 77;
  if (early) free(malloc(100));
  CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
  size_t got = 0;
  for (char* p; got < 8 * kMib && (p = malloc(1000)) != NULL; got += 1000) memset(p, 1, 1000);
  const int why = errno;
  dprintf(2, "early %d: %zu KiB of 8192, %ld locked\n", early, got >> 10, locked_kib());
  CHECK_EQUAL(why, ENOMEM);
  return got >= 3 * kMib ? 0 : 1;
}

// Pages that the program locked and gave back without unlocking them are purged, and read as zero.
static int given_back(int unused) {
  (void)unused;
  enum { kBlocks = 40, kBytes = 300000 };
  static char* blocks[kBlocks];
  size_t locked = 0;
  for (int i = 0; i < kBlocks; ++i) {
    CHECK((blocks[i] = malloc(kBytes)) != NULL);
    memset(blocks[i], 0xAB, kBytes);
    locked += mlock(blocks[i], kBytes) == 0;
  }
  if (locked == 0) return 77;
  const long with = status_kib("VmRSS:");
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  malloc_trim(0);
  const long without = status_kib("VmRSS:");
  dprintf(2, "%zu of %d blocks locked, %ld KiB resident, then %ld\n", locked, kBlocks, with,
          without);
  for (int i = 0; i < kBlocks; ++i) {
    CHECK((blocks[i] = calloc(1, kBytes)) != NULL);
    for (size_t b = 0; b < kBytes; ++b) CHECK(blocks[i][b] == 0);
  }
  return with - without >= kBlocks * (kBytes >> 10) * 3 / 4 ? 0 : 1;
}

// The child of a fork(), which has no locks, continues. So does the program after munlockall(),
// although the heap then still reserves nothing.
static int goes_on(int unused) {
  (void)unused;
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 77;
  static char* blocks[3000];
  for (int round = 0; round < 3; ++round) {
    if (round == 1) munlockall();
    if (round == 2) {
      const pid_t child = fork();
      if (child != 0) {
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
      }
    }
    for (int i = 0; i < 3000; ++i)
      CHECK((blocks[i] = calloc(1, (size_t)(i % 300) * 300 + 1)) != NULL);
    for (int i = 0; i < 3000; ++i) CHECK(blocks[i][i % 300 * 300] == 0);
    for (int i = 0; i < 3000; ++i) free(blocks[i]);
    malloc_trim(0);
  }
  return locked_kib() < 4096 ? 0 : 1;
}

// Mappings of the program between aligned blocks stay its own, and the blocks keep their contents.
static int shares_addresses(int unused) {
  (void)unused;
  enum { kBlocks = 30 };
  static char *blocks[kBlocks], *others[kBlocks];
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 77;
  for (int i = 0; i < kBlocks; ++i) {
    CHECK((blocks[i] = aligned_alloc(2 * kMib, 2 * kMib)) != NULL);
    memset(blocks[i], 1, 2 * kMib);
    others[i] = mmap(NULL, kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(others[i] != MAP_FAILED);
    memset(others[i], 2, kMib);
    if (i % 2 == 1) free(blocks[i]);
    for (int j = 0; j <= i; ++j) {
      for (int at = 0; at < kMib; at += 4096)
        CHECK(others[j][at] == 2 && (j % 2 == 1 || blocks[j][at] == 1));
    }
  }
  return 0;
}

static const char* self;
static int by_exec(int variant) {
  char text[8];
  snprintf(text, sizeof text, "%d", variant);
  execl(self, self, text, (char*)NULL);
  return 1;
}

int main(int argc, char** argv) {
  self = argv[0];
  enum { kBudget = 100 };
  if (argc > 1) {
    const int variant = atoi(argv[1]);
    return variant >= kBudget ? used_within_limit(variant - kBudget) : live_is_locked(variant);
  }
  int skipped = 0;
  // A hardened heap keeps its knowledge of blocks in tables of addresses. They count if all present
  // memory is locked.
  const int variants = getenv("LOAM_HARDEN") != NULL ? kCurrent : kBudget + 2;
  for (int variant = 0; variant < variants; ++variant) {
    if (variant == kVariants) variant = kBudget;
    const int result = in_child(by_exec, variant);
    skipped += result == 77;
    if (result == 1) dprintf(2, "variant %d fails\n", variant);
    CHECK(result == 0 || result == 77);
  }
  const int results[] = {in_child(given_back, 0), in_child(goes_on, 0),
                         in_child(shares_addresses, 0)};
  for (int i = 0; i < 3; ++i) {
    skipped += results[i] == 77;
    CHECK(results[i] == 0 || results[i] == 77);
  }
  if (skipped == (variants == kCurrent ? kCurrent : kVariants + 2) + 3)
    SKIP("no memory may be locked here");
  return 0;
}
