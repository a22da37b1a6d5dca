/* The part of jemalloc's test harness that its integration tests of the standard functions use,
   written from scratch over the C library's names.  Each test prints one line
   "check: NAME: ok" or "check: NAME: FAILED" for the runner. */

#ifndef LOAM_CONFORMANCE_JEMALLOC_TEST_H
#define LOAM_CONFORMANCE_JEMALLOC_TEST_H

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef NDEBUG
#error "the tests verify with assert: compile them without NDEBUG"
#endif

#if UINTPTR_MAX > 0xffffffffu
#define LG_SIZEOF_PTR 3
#else
#define LG_SIZEOF_PTR 2
#endif

#define BUFERROR_BUF 64
#define JEMALLOC_DIAGNOSTIC_PUSH
#define JEMALLOC_DIAGNOSTIC_POP
#define JEMALLOC_DIAGNOSTIC_IGNORE_ALLOC_SIZE_LARGER_THAN
#define TEST_MALLOC_SIZE(block) malloc_usable_size(block)

static bool harness_failed;  /* The test that is running has failed. */
static int harness_failures; /* Tests that have failed. */

static inline int get_errno(void) { return errno; }

static inline void set_errno(int value) { errno = value; }

static inline int buferror(int error, char *buffer, size_t length) {
  snprintf(buffer, length, "%s", strerror(error));
  return 0;
}

/* The tests ask for a purge between cycles; malloc_trim is the neutral name of that. */
static inline int mallctl(const char *name, void *old, size_t *old_length, void *value,
                          size_t length) {
  (void)name, (void)old, (void)old_length, (void)value, (void)length;
  malloc_trim(0);
  return 0;
}

static inline void harness_fail(const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s:%d: ", file, line);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  harness_failed = true;
}

#define test_fail(...) harness_fail(__FILE__, __LINE__, __VA_ARGS__)
#define harness_expect(condition, ...) \
  do {                                 \
    if (!(condition)) {                \
      test_fail(__VA_ARGS__);          \
    }                                  \
  } while (0)
#define expect_true(condition, ...) harness_expect((condition), __VA_ARGS__)
#define expect_false(condition, ...) harness_expect(!(condition), __VA_ARGS__)
#define expect_d_eq(left, right, ...) harness_expect((left) == (right), __VA_ARGS__)
#define expect_d_ne(left, right, ...) harness_expect((left) != (right), __VA_ARGS__)
#define expect_zu_eq(left, right, ...) harness_expect((left) == (right), __VA_ARGS__)
#define expect_ptr_not_null(pointer, ...) harness_expect((pointer) != NULL, __VA_ARGS__)

typedef void harness_test(void);

#define TEST_BEGIN(function)              \
  static void function(void) {            \
    const char *harness_name = #function; \
    harness_failed = false;
#define TEST_END                \
  harness_finish(harness_name); \
  }

static inline void harness_finish(const char *name) {
  printf("check: %s: %s\n", name, harness_failed ? "FAILED" : "ok");
  fflush(stdout);
  harness_failures += harness_failed;
}

static inline int harness_run(harness_test *const *tests) {
  for (; *tests != NULL; tests++) {
    (*tests)();
  }
  return harness_failures == 0 ? 0 : 1;
}

#define test(...) harness_run((harness_test *const[]){__VA_ARGS__, NULL})

#endif
