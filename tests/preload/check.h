// The common part of the programs here: CHECK, which prints where it failed and ends the program
// without allocating, and readers of /proc/self that do not allocate either.
//
// A program exits 0 when the behaviour in its first comment holds, 1 when it does not, and 77 when
// this machine or this malloc cannot show it (ctest prints it as skipped).
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                     \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      dprintf(2, "%s:%d: not true: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
      _exit(1);                                                                              \
    }                                                                                        \
  } while (0)

#define CHECK_EQUAL(left, right)                                                              \
  do {                                                                                        \
    const long long left_value = (long long)(left);                                           \
    const long long right_value = (long long)(right);                                         \
    if (left_value != right_value) {                                                          \
      dprintf(2, "%s:%d: %s is %lld, not %lld (%s)\n", __FILE__, __LINE__, #left, left_value, \
              right_value, #right);                                                           \
      _exit(1);                                                                               \
    }                                                                                         \
  } while (0)

#define SKIP(reason)                       \
  do {                                     \
    dprintf(2, "skipped: %s\n", (reason)); \
    _exit(77);                             \
  } while (0)

// gcc knows the purpose of malloc and removes pairs whose block it considers unused. This function
// hides the origin of a pointer.
static inline void* opaque(void* pointer) {
  __asm__ volatile("" : "+r"(pointer) : : "memory");
  return pointer;
}

static inline size_t opaque_size(size_t size) {
  __asm__ volatile("" : "+r"(size));
  return size;
}

// Reads to the end as a text, as much of it as `text` holds, and closes. Returns the text's length.
static inline size_t read_all(int file, char* text, size_t size) {
  size_t used = 0;
  ssize_t got;
  while (used < size - 1 && (got = read(file, text + used, size - 1 - used)) > 0) {
    used += (size_t)got;
  }
  text[used] = '\0';
  close(file);
  return used;
}

// Reads a file under /proc as a text, as much of it as `text` holds. Returns its length; -1 if
// there is no such file.
static inline long proc_text(const char* path, char* text, size_t size) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  return file < 0 ? -1 : (long)read_all(file, text, size);
}

// A number from a file under /proc that follows `key` (with its colon), or the file's first number
// when `key` is empty; -1 if there is none.
static inline long proc_number(const char* path, const char* key) {
  char text[8192];
  if (proc_text(path, text, sizeof text) < 0) return -1;
  const char* at = key[0] == '\0' ? text : strstr(text, key);
  return at == NULL ? -1 : atol(at + strlen(key));
}

// smaps_rollup, because status and statm are batched per CPU and may be hundreds of kB off.
static inline long resident_kib(void) { return proc_number("/proc/self/smaps_rollup", "\nRss:"); }

// The count of the process so far.
static inline long minor_faults(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_minflt;
}

// Acts in a child, which is to end well.
static inline void check_in_child(void (*act)(const void*), const void* argument) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    act(argument);
    _exit(0);
  }
  int status = 0;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK_EQUAL(status, 0);
}

// A cheap generator with a state of its own per thread: xorshift64*.
static inline uint64_t next_random(uint64_t* state) {
  uint64_t x = *state;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *state = x;
  return x * 0x2545F4914F6CDD1DULL;
}

// Fills or verifies a block with bytes that depend on its own seed and on the offset.
static inline unsigned char pattern_byte(uint64_t seed, size_t offset) {
  return (unsigned char)(seed * 131 + offset * 7 + (offset >> 8));
}

static inline void fill_pattern(void* block, size_t size, uint64_t seed) {
  for (size_t i = 0; i < size; ++i) ((unsigned char*)block)[i] = pattern_byte(seed, i);
}

static inline bool has_pattern(const void* block, size_t size, uint64_t seed) {
  for (size_t i = 0; i < size; ++i) {
    if (((const unsigned char*)block)[i] != pattern_byte(seed, i)) return false;
  }
  return true;
}
