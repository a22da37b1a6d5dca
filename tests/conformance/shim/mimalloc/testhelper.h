/* The harness of mimalloc's API test, written from scratch: each check prints one line
   "check: NAME: ok", "check: NAME: FAILED" or "check: NAME: skipped (REASON)" for the runner. */

#ifndef LOAM_CONFORMANCE_TESTHELPER_H
#define LOAM_CONFORMANCE_TESTHELPER_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int harness_failures;

static const struct {
  const char* name;
  const char* reason;
} harness_skipped[] = {
    {"malloc_aligned11", "mimalloc's heaps"},
    {"malloc-aligned-at1", "alignment at an offset is not a standard function"},
    {"malloc-aligned-at2", "alignment at an offset is not a standard function"},
    {"realloc-sizezero", "contradicts the C library's tst-realloc: realloc(p, 0) frees p"},
    {"heap_destroy", "mimalloc's heaps"},
    {"heap_delete", "mimalloc's heaps"},
    {"stl_allocator1", "mimalloc's C++ adaptor"},
    {"stl_allocator2", "mimalloc's C++ adaptor"},
};

static inline bool harness_skips(const char* name) {
  for (size_t i = 0; i < sizeof(harness_skipped) / sizeof(harness_skipped[0]); i++) {
    if (strcmp(name, harness_skipped[i].name) == 0) {
      printf("check: %s: skipped (%s)\n", name, harness_skipped[i].reason);
      return true;
    }
  }
  return false;
}

static inline bool harness_check(bool result, const char* name) {
  printf("check: %s: %s\n", name, result ? "ok" : "FAILED");
  fflush(stdout);
  harness_failures += !result;
  return true;
}

#define CHECK_BODY(name) \
  errno = 0;             \
  for (bool done = harness_skips(name), result = true; !done; done = harness_check(result, name))

#define CHECK(name, expression) \
  CHECK_BODY(name) { result = (expression); }

static inline int print_test_summary(void) { return harness_failures == 0 ? 0 : 1; }

#endif
