// Replaces each call that a heap makes of the C library by one that allocates before it does its
// work. Tools and programs have such calls (jemalloc#329, jemalloc#500, ompi#13149). This file is
// part of the program, or of a library that is loaded before the heap.
//
// INTRUDER=shared: one guard against calls inside calls serves the whole process, as in a careless
// tool. Otherwise each thread has its own. Not replaced are dlsym(), and memcpy() and its kin: a
// tool that allocates in memcpy() could work with no allocator.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "intruder.h"

static __thread int inside __attribute__((tls_model("initial-exec")));
static int shared_inside;
static int is_shared = -1;
long intruder_calls;

static int enter(void) {
  if (is_shared < 0) {
    is_shared = 0;
    for (char** entry = environ; entry != NULL && *entry != NULL; ++entry) {
      const char* a = *entry;
      const char* b = "INTRUDER=shared";
      while (*b != '\0' && *a == *b) ++a, ++b;
      if (*b == '\0') is_shared = 1;
    }
  }
  if (is_shared) return !__atomic_exchange_n(&shared_inside, 1, __ATOMIC_ACQUIRE);
  return inside++ == 0 ? 1 : (--inside, 0);
}

static void leave(void) {
  if (is_shared) {
    __atomic_store_n(&shared_inside, 0, __ATOMIC_RELEASE);
  } else {
    --inside;
  }
}

// The sizes differ at every call, because a block from a thread's cache would need no lock.
static void intrude(void) {
  static unsigned turn;
  if (!enter()) return;
  __atomic_fetch_add(&intruder_calls, 1, __ATOMIC_RELAXED);
  const unsigned n = __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED);
  static const size_t sizes[] = {24, 100000, 700, 9000, 600000, 3000, 70000, (size_t)36 << 20};
  void* blocks[20];
  for (unsigned i = 0; i < 20; ++i) {
    blocks[i] = malloc(sizes[(n + i) % (n % 16 == 0 ? 8 : 7)] + n % 37 * 16);
    if (blocks[i] != NULL) *(volatile char*)blocks[i] = 1;
  }
  blocks[0] = realloc(blocks[0], 200000);
  for (unsigned i = 0; i < 20; ++i) free(blocks[i]);
  leave();
}

// Looks the name up without a call inside a call: dlsym() may allocate.
#define NEXT(name)                            \
  static __typeof__(&name) next;              \
  if (next == NULL) {                         \
    const int mine = enter();                 \
    *(void**)&next = dlsym(RTLD_NEXT, #name); \
    if (mine) leave();                        \
    if (next == NULL) abort();                \
  }                                           \
  intrude();

#define REPLACE(type, name, parameters, arguments) \
  type name parameters {                           \
    NEXT(name)                                     \
    return next arguments;                         \
  }

REPLACE(void*, mmap, (void* a, size_t n, int p, int f, int fd, off_t o), (a, n, p, f, fd, o))
REPLACE(void*, mmap64, (void* a, size_t n, int p, int f, int fd, off64_t o), (a, n, p, f, fd, o))
REPLACE(int, munmap, (void* a, size_t n), (a, n))
REPLACE(int, madvise, (void* a, size_t n, int advice), (a, n, advice))
REPLACE(int, mprotect, (void* a, size_t n, int p), (a, n, p))
REPLACE(int, mincore, (void* a, size_t n, unsigned char* out), (a, n, out))
REPLACE(int, clock_gettime, (clockid_t clock, struct timespec* out), (clock, out))
REPLACE(int, nanosleep, (const struct timespec* span, struct timespec* left), (span, left))
REPLACE(int, sched_yield, (void), ())
REPLACE(ssize_t, write, (int fd, const void* from, size_t n), (fd, from, n))
REPLACE(ssize_t, read, (int fd, void* to, size_t n), (fd, to, n))
REPLACE(int, close, (int fd), (fd))
REPLACE(int, mkdirat, (int fd, const char* path, mode_t mode), (fd, path, mode))
REPLACE(int, mkdir, (const char* path, mode_t mode), (path, mode))
REPLACE(int, unlink, (const char* path), (path))
REPLACE(int, rename, (const char* from, const char* to), (from, to))
REPLACE(ssize_t, getrandom, (void* to, size_t n, unsigned flags), (to, n, flags))
REPLACE(int, getrusage, (int who, struct rusage* out), (who, out))
REPLACE(pid_t, getpid, (void), ())
REPLACE(pid_t, gettid, (void), ())
REPLACE(uid_t, geteuid, (void), ())
REPLACE(long, sysconf, (int name), (name))
REPLACE(unsigned long, getauxval, (unsigned long type), (type))
REPLACE(char*, getenv, (const char* name), (name))
REPLACE(char*, secure_getenv, (const char* name), (name))
REPLACE(int, prctl,
        (int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d),
        (option, a, b, c, d))
REPLACE(int, pthread_key_create, (pthread_key_t * key, void (*end)(void*)), (key, end))
REPLACE(int, pthread_key_delete, (pthread_key_t key), (key))
REPLACE(int, pthread_setspecific, (pthread_key_t key, const void* value), (key, value))
REPLACE(void*, pthread_getspecific, (pthread_key_t key), (key))
REPLACE(int, pthread_attr_init, (pthread_attr_t * attributes), (attributes))
REPLACE(int, pthread_attr_setstacksize, (pthread_attr_t * attributes, size_t n), (attributes, n))
REPLACE(int, pthread_attr_setdetachstate, (pthread_attr_t * attributes, int state),
        (attributes, state))
REPLACE(int, pthread_create,
        (pthread_t * thread, const pthread_attr_t* attributes, void* (*body)(void*),
         void* argument),
        (thread, attributes, body, argument))
REPLACE(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* before), (how, set, before))
REPLACE(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
REPLACE(int, pthread_mutex_unlock, (pthread_mutex_t * mutex), (mutex))

void* mremap(void* a, size_t n, size_t wanted, int flags, ...) {
  va_list more;
  va_start(more, flags);
  void* const to = va_arg(more, void*);
  va_end(more);
  NEXT(mremap)
  return next(a, n, wanted, flags, to);
}

long syscall(long number, ...) {
  long a[6];
  va_list more;
  va_start(more, number);
  for (int i = 0; i < 6; ++i) a[i] = va_arg(more, long);
  va_end(more);
  NEXT(syscall)
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#define REPLACE_OPEN(name, parameters, arguments) \
  int name parameters {                           \
    va_list more;                                 \
    va_start(more, flags);                        \
    const mode_t mode = va_arg(more, mode_t);     \
    va_end(more);                                 \
    NEXT(name)                                    \
    return next arguments;                        \
  }
REPLACE_OPEN(open, (const char* path, int flags, ...), (path, flags, mode))
REPLACE_OPEN(openat, (int at, const char* path, int flags, ...), (at, path, flags, mode))

// Ends the program, and allocates too.
void abort(void) {
  intrude();
  intruder_calls = -1;
  _Exit(134);
}
