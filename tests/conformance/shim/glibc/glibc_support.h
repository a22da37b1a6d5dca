/* The part of the C library's test-support interface that its allocation tests use, written from
   scratch so that the tests compile outside the C library's own build.

   Verification failures are counted in memory shared with forked children, because several tests
   verify in a child and expect the parent's exit status to show it.  Nothing here allocates from
   the heap under test before a test does, except what the tests ask for (create_temp_file). */

#ifndef LOAM_CONFORMANCE_GLIBC_SUPPORT_H
#define LOAM_CONFORMANCE_GLIBC_SUPPORT_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT 20
#define EXIT_UNSUPPORTED 77

#define array_length(array) (sizeof(array) / sizeof((array)[0]))

static int *support_failures; /* In shared memory; set up by support_initialize. */

static inline void support_initialize(void) {
  support_failures =
      mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_SHARED, -1, 0);
  if (support_failures == MAP_FAILED) _exit(99);
}

static inline void support_report(const char *file, int line, const char *format, ...) {
  /* A buffer on the stack and dprintf's own: stdio streams may not be usable in a signal handler
     or in a child forked from threads. */
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  dprintf(STDOUT_FILENO, "%s:%d: %s\n", file, line, text);
  __atomic_add_fetch(support_failures, 1, __ATOMIC_RELAXED);
}

#define FAIL(...) support_report(__FILE__, __LINE__, __VA_ARGS__)
#define FAIL_EXIT(status, ...) (FAIL(__VA_ARGS__), exit(status))
#define FAIL_EXIT1(...) FAIL_EXIT(1, __VA_ARGS__)
#define FAIL_UNSUPPORTED(...) FAIL_EXIT(EXIT_UNSUPPORTED, __VA_ARGS__)

#define TEST_VERIFY(condition) ((condition) ? (void)0 : FAIL("not true: %s", #condition))
#define TEST_VERIFY_EXIT(condition) ((condition) ? (void)0 : FAIL_EXIT1("not true: %s", #condition))
#define TEST_COMPARE(left, right)                                                     \
  do {                                                                                \
    long long support_left = (long long)(left), support_right = (long long)(right);   \
    if (support_left != support_right)                                                \
      FAIL("%s is %lld, but %s is %lld", #left, support_left, #right, support_right); \
  } while (0)

static inline void write_message(const char *text) {
  ssize_t ignored = write(STDOUT_FILENO, text, strlen(text));
  (void)ignored;
}

static inline void *xmalloc(size_t size) {
  void *result = malloc(size);
  if (result == NULL) FAIL_EXIT1("malloc (%zu): %m", size);
  return result;
}

static inline void *xcalloc(size_t count, size_t size) {
  void *result = calloc(count, size);
  if (result == NULL) FAIL_EXIT1("calloc (%zu, %zu): %m", count, size);
  return result;
}

static inline void *xrealloc(void *block, size_t size) {
  void *result = realloc(block, size);
  if (result == NULL && size != 0) FAIL_EXIT1("realloc (%p, %zu): %m", block, size);
  return result;
}

static inline void *xmmap(void *address, size_t length, int protection, int flags, int descriptor) {
  void *result = mmap(address, length, protection, flags, descriptor, 0);
  if (result == MAP_FAILED) FAIL_EXIT1("mmap of %zu bytes: %m", length);
  return result;
}

static inline int xopen(const char *path, int flags, mode_t mode) {
  int result = open(path, flags, mode);
  if (result < 0) FAIL_EXIT1("open (%s): %m", path);
  return result;
}

static inline pid_t xfork(void) {
  pid_t result = fork();
  if (result < 0) FAIL_EXIT1("fork: %m");
  return result;
}

static inline void xsignal(int signal_number, void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  if (sigaction(signal_number, &action, NULL) != 0) FAIL_EXIT1("sigaction (%d): %m", signal_number);
}

/* The pthread functions return their error instead of setting errno. */
#define SUPPORT_CHECK_PTHREAD(call)                                               \
  do {                                                                            \
    int support_error = (call);                                                   \
    if (support_error != 0) FAIL_EXIT1("%s: %s", #call, strerror(support_error)); \
  } while (0)

static inline pthread_t xpthread_create(pthread_attr_t *attributes, void *(*function)(void *),
                                        void *closure) {
  pthread_t thread;
  SUPPORT_CHECK_PTHREAD(pthread_create(&thread, attributes, function, closure));
  return thread;
}

static inline void *xpthread_join(pthread_t thread) {
  void *result;
  SUPPORT_CHECK_PTHREAD(pthread_join(thread, &result));
  return result;
}

static inline void xpthread_kill(pthread_t thread, int signal_number) {
  SUPPORT_CHECK_PTHREAD(pthread_kill(thread, signal_number));
}

static inline void xpthread_barrier_init(pthread_barrier_t *barrier,
                                         pthread_barrierattr_t *attributes, unsigned int count) {
  SUPPORT_CHECK_PTHREAD(pthread_barrier_init(barrier, attributes, count));
}

static inline int xpthread_barrier_wait(pthread_barrier_t *barrier) {
  int result = pthread_barrier_wait(barrier);
  if (result != 0 && result != PTHREAD_BARRIER_SERIAL_THREAD)
    FAIL_EXIT1("pthread_barrier_wait: %s", strerror(result));
  return result;
}

static inline void xpthread_barrier_destroy(pthread_barrier_t *barrier) {
  SUPPORT_CHECK_PTHREAD(pthread_barrier_destroy(barrier));
}

static inline void xpthread_barrierattr_init(pthread_barrierattr_t *attributes) {
  SUPPORT_CHECK_PTHREAD(pthread_barrierattr_init(attributes));
}

static inline void xpthread_barrierattr_setpshared(pthread_barrierattr_t *attributes, int shared) {
  SUPPORT_CHECK_PTHREAD(pthread_barrierattr_setpshared(attributes, shared));
}

static inline void xpthread_barrierattr_destroy(pthread_barrierattr_t *attributes) {
  SUPPORT_CHECK_PTHREAD(pthread_barrierattr_destroy(attributes));
}

/* Memory shared with forked children.  A leading page has its length, so that support_shared_free
   needs no table. */
static inline void *support_shared_allocate(size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t total = page + ((size + page - 1) & ~(page - 1));
  char *base = xmmap(NULL, total, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_SHARED, -1);
  memcpy(base, &total, sizeof(total));
  return base + page;
}

static inline void support_shared_free(void *shared) {
  char *base = (char *)shared - sysconf(_SC_PAGESIZE);
  size_t total;
  memcpy(&total, base, sizeof(total));
  munmap(base, total);
}

/* No test makes more than one temporary file.  The path is kept outside the heap under test: the
   test frees the copy that it was given. */
static char support_temp_path[256];
static pid_t support_temp_owner;

static void support_remove_temp_file(void) {
  if (getpid() == support_temp_owner) unlink(support_temp_path);
}

static inline int create_temp_file(const char *base, char **path) {
  const char *folder = getenv("TMPDIR");
  snprintf(support_temp_path, sizeof(support_temp_path), "%s/%s.XXXXXX",
           folder != NULL ? folder : "/tmp", base);
  int descriptor = mkstemp(support_temp_path);
  if (descriptor < 0) return -1;
  support_temp_owner = getpid();
  atexit(support_remove_temp_file);
  if (path != NULL) *path = strdup(support_temp_path);
  return descriptor;
}

#endif
