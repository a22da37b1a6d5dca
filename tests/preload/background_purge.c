// With LOAM_BACKGROUND_PURGE=on a process that frees its memory and then calls nothing is small
// again within seconds, and so is its child. Without the option there is no second thread.
// Argument: on or off, the option's value.
#include <sys/wait.h>
#include <time.h>

#include "check.h"

enum { kSmall = 200000, kSmallBytes = 500, kLarge = 20, kLargeBytes = 4 << 20 };
static void* blocks[kSmall];

// An emulator of processors (qemu-user) has a thread of its own beside the program's from the
// start, and memory for translated code.
static bool emulated(void) {
  char name[5] = "";
  const int file = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0 && read(file, name, 4) > 0);
  close(file);
  return strcmp(name, "qemu") == 0;
}

static long threads(void) { return proc_number("/proc/self/status", "\nThreads:") - emulated(); }

static void sleep_ms(long ms) {
  struct timespec span = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&span, NULL);
}

static void work(void) {
  for (int i = 0; i < kSmall; ++i) {
    blocks[i] = opaque(malloc(kSmallBytes));
    CHECK(blocks[i] != NULL);
    memset(blocks[i], 1, kSmallBytes);
  }
  void* large[kLarge];
  for (int i = 0; i < kLarge; ++i) {
    large[i] = opaque(malloc(kLargeBytes));
    CHECK(large[i] != NULL);
    memset(large[i], 1, kLargeBytes);
  }
  for (int i = 0; i < kSmall; ++i) free(blocks[i]);
  for (int i = 0; i < kLarge; ++i) free(large[i]);
}

// Seconds until resident memory fell to `most` KiB without any call of the heap; -1 if it never
// did.
static long quiet_until(long most) {
  for (long ms = 0; ms < 60000; ms += 100) {
    if (resident_kib() <= most) return ms / 1000;
    sleep_ms(100);
  }
  return -1;
}

static void run(bool on, const char* who) {
  memset(blocks, 1, sizeof blocks);  // the table is not in the heap
  const long before = resident_kib();
  CHECK_EQUAL(threads(), 1);
  work();
  if (!on) {
    CHECK_EQUAL(threads(), 1);
    return;
  }
  const long full = resident_kib();
  const long seconds = quiet_until(before + (emulated() ? 20 : 6) * 1024);
  dprintf(2, "%s: resident %ld KiB at first, %ld when all was freed, %ld after %ld s of nothing\n",
          who, before, full, resident_kib(), seconds);
  CHECK(seconds >= 0);
  CHECK_EQUAL(threads(), 2);
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  const bool on = strcmp(argv[1], "on") == 0;
  run(on, "parent");
  // qemu-user 7.2 itself ends in the child of a process with threads.
  if (emulated()) return 0;
  // The child has no such thread at first, even if its parent had one, and then gets one of its
  // own.
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    run(on, "child");
    _exit(0);
  }
  int status;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK_EQUAL(status, 0);
  return 0;
}
