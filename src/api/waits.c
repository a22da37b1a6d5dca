/* The C library's functions that wait, in libloam.so only. Where much is free and backed, a wait of
 * 0.75 s or more is split in two: if nothing came in its first part, the thread gives back
 * what a clock would have given back, and waits for the rest (decision 136).
 *
 *   first part, until the heap is silent | heap::settle() | the rest, up to the same deadline
 *
 * While it gives back, the thread asks between pieces of some milliseconds whether what it waits
 * for has come.
 *
 * The parts are the C library's own calls, which are points of cancellation. All signals are
 * blocked around the parts, and each part waits with the program's mask. So no signal is handled
 * between two parts: it would interrupt no wait. Then a wait of poll() is one of ppoll(), and so
 * on. A sleep's parts are those of ppoll(), which may end late by a thousandth; the last moment is
 * one of clock_nanosleep(), which does not.
 *
 * Waits for conditions, and blocking calls that a handler with SA_RESTART restarts, cannot be split
 * in this way.
 *
 * Where little is free, a call is a jump to the C library's function, with the same system call as
 * ever. A program's own functions of these names stand before these, as they stand before the C
 * library's. Every function may be called in a handler of a signal. */
#define _GNU_SOURCE
#if defined(__linux__)
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define EXPORT __attribute__((visibility("default")))

/* Declared in heap/silence.h; nanoseconds, UINT64_MAX: for ever. */
HIDDEN bool loam_much_waits(void);
HIDDEN uint64_t loam_until_silence(void);
HIDDEN uint64_t loam_settle(bool (*go_on)(void*), void* context);
HIDDEN uint64_t loam_now(void);
/* Defined in os/linux.cpp: the system call. */
HIDDEN long loam_set_signal_mask(const uint64_t* mask, uint64_t* before);

static const uint64_t kForever = UINT64_MAX;
static const uint64_t kSecond = 1000000000, kMs = 1000000;
/* Chosen: more looks than any wait needs in a heap that others use now and then. */
enum { kMostLooks = 16 };
/* Chosen: longer than a piece of what is given back takes. */
enum { kPieceMs = 16 };

typedef _Atomic(void*) Next;

__attribute__((cold, noinline)) static void* find(Next* next, const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  /* relaxed: every thread finds the same value */
  atomic_store_explicit(next, found, memory_order_relaxed);
  return found;
}
static inline void* next_of(Next* next, const char* name) {
  void* const known = atomic_load_explicit(next, memory_order_relaxed);
  return __builtin_expect(known != NULL, 1) ? known : find(next, name);
}
/* The C library's function; null if it has none. */
#define NEXT(name) ((__typeof__(&name))next_of(&next_##name, #name))

static Next next_poll, next_ppoll, next_select, next_pselect, next_epoll_wait, next_epoll_pwait,
    next_epoll_pwait2, next_sleep, next_usleep, next_nanosleep, next_clock_nanosleep,
    next_pthread_testcancel, next_pthread_setcancelstate;
/* glibc 2.35; other C libraries' headers lack it. */
int epoll_pwait2(int file, struct epoll_event* events, int most, const struct timespec* timeout,
                 const sigset_t* mask);

static struct timespec timespec_of(uint64_t ns) {
  const struct timespec span = {(time_t)(ns / kSecond), (long)(ns % kSecond)};
  return span;
}
/* False for what the C library refuses. */
static bool read_timespec(const struct timespec* span, uint64_t* ns) {
  if (span->tv_sec < 0 || span->tv_nsec < 0 || span->tv_nsec >= (long)kSecond) return false;
  if ((uint64_t)span->tv_sec > INT32_MAX)
    *ns = kForever - 1;
  else
    *ns = (uint64_t)span->tv_sec * kSecond + (uint64_t)span->tv_nsec;
  return true;
}
static uint64_t sum(uint64_t now, uint64_t ns) {
  return ns >= kForever - now ? (ns == kForever ? kForever : kForever - 1) : now + ns;
}
static uint64_t left_of(uint64_t deadline) {
  if (deadline == kForever) return kForever;
  const uint64_t now = loam_now();
  return deadline > now ? deadline - now : 0;
}

struct wait {
  /* Waits with the mask; a null limit is for ever. Returns what the program's call returns, 0 at
   * the limit. */
  int (*part)(void* arguments, const struct timespec* limit, const sigset_t* mask);
  void* arguments;
  const sigset_t* mask; /* the program's; null: the thread's */
  uint64_t deadline;
};

/* A wait that asks between the pieces of what is given back whether its end has come. */
struct asking {
  const struct wait* wait;
  const sigset_t* mask;
  int result;
  int error; /* errno, which the heap restores */
};

static bool may_go_on(void* context) {
  struct asking* const asking = context;
  const struct wait* const wait = asking->wait;
  /* What has come is told once: a signal is handled, an edge-triggered event is gone. */
  if (asking->result != 0 || left_of(wait->deadline) < kPieceMs * kMs) return false;
  const struct timespec none = {0, 0};
  asking->result = wait->part(wait->arguments, &none, asking->mask);
  asking->error = errno;
  return asking->result == 0;
}

/* The heap's frames must not be left by a cancellation. The next part sees it. */
static uint64_t settle(struct asking* asking) {
  const __typeof__(&pthread_setcancelstate) set = NEXT(pthread_setcancelstate);
  int before = PTHREAD_CANCEL_ENABLE;
  if (set != NULL) set(PTHREAD_CANCEL_DISABLE, &before);
  const uint64_t next = loam_settle(may_go_on, asking);
  if (set != NULL) set(before, NULL);
  return next;
}

/* True if the wait has ended, with this result. False, and nothing has changed: it is not split. */
static bool split(const struct wait* wait, int* result) {
  uint64_t look = loam_until_silence();
  if (look >= left_of(wait->deadline)) return false;
  const __typeof__(&pthread_testcancel) testcancel = NEXT(pthread_testcancel);
  if (testcancel != NULL) testcancel();
  const int errno_before = errno;
  const uint64_t all = UINT64_MAX;
  uint64_t before;
  if (loam_set_signal_mask(&all, &before) != 0) return false;
  sigset_t own;
  memset(&own, 0, sizeof own);
  memcpy(&own, &before, sizeof before); /* the kernel's part */
  struct asking asking = {wait, wait->mask != NULL ? wait->mask : &own, 0, 0};
  bool done = true;
  for (int looks = 0;; ++looks) {
    const uint64_t left = left_of(wait->deadline);
    const bool is_last = look >= left;
    const struct timespec limit = timespec_of(is_last ? left : look);
    *result = wait->part(wait->arguments, is_last && left == kForever ? NULL : &limit, asking.mask);
    if (*result < 0 && looks == 0 && (errno == ENOSYS || errno == EPERM || errno == EACCES)) {
      /* A sandbox refuses the form of the call that takes a mask. */
      errno = errno_before;
      done = false;
      break;
    }
    if (is_last || *result != 0) break;
    look = looks == kMostLooks ? kForever : settle(&asking);
    *result = asking.result;
    if (*result == 0) continue;
    if (*result < 0) errno = asking.error;
    break;
  }
  loam_set_signal_mask(&before, NULL);
  return done;
}

/* ---- poll ------------------------------------------------------------------------------------ */

struct polled {
  struct pollfd* files;
  nfds_t count;
};

static int poll_part(void* arguments, const struct timespec* limit, const sigset_t* mask) {
  const struct polled* const polled = arguments;
  return NEXT(ppoll)(polled->files, polled->count, limit, mask);
}

__attribute__((noinline)) static bool split_poll(struct pollfd* files, nfds_t count, uint64_t limit,
                                                 const sigset_t* mask, int* result) {
  struct polled polled = {files, count};
  const struct wait wait = {poll_part, &polled, mask, sum(loam_now(), limit)};
  return NEXT(ppoll) != NULL && split(&wait, result);
}

EXPORT int poll(struct pollfd* files, nfds_t count, int timeout) {
  int result;
  if (__builtin_expect(timeout != 0 && loam_much_waits(), 0) &&
      split_poll(files, count, timeout < 0 ? kForever : (uint64_t)timeout * kMs, NULL, &result))
    return result;
  return NEXT(poll)(files, count, timeout);
}

EXPORT int ppoll(struct pollfd* files, nfds_t count, const struct timespec* timeout,
                 const sigset_t* mask) {
  int result;
  uint64_t limit = kForever;
  if (__builtin_expect(loam_much_waits(), 0) &&
      (timeout == NULL || read_timespec(timeout, &limit)) &&
      split_poll(files, count, limit, mask, &result))
    return result;
  return NEXT(ppoll)(files, count, timeout, mask);
}

/* What poll() and ppoll() are in a program that was compiled with _FORTIFY_SOURCE. */
EXPORT int __poll_chk(struct pollfd* files, nfds_t count, int timeout, size_t bytes);
EXPORT int __ppoll_chk(struct pollfd* files, nfds_t count, const struct timespec* timeout,
                       const sigset_t* mask, size_t bytes);
static Next next___poll_chk, next___ppoll_chk;

int __poll_chk(struct pollfd* files, nfds_t count, int timeout, size_t bytes) {
  if (bytes / sizeof *files < count) return NEXT(__poll_chk)(files, count, timeout, bytes);
  return poll(files, count, timeout);
}
int __ppoll_chk(struct pollfd* files, nfds_t count, const struct timespec* timeout,
                const sigset_t* mask, size_t bytes) {
  if (bytes / sizeof *files < count) return NEXT(__ppoll_chk)(files, count, timeout, mask, bytes);
  return ppoll(files, count, timeout, mask);
}

/* ---- select ---------------------------------------------------------------------------------- */

/* A part that ends at its limit clears the sets. */
struct selected {
  int end;
  fd_set* sets[3];
  fd_set wanted[3];
};

static int select_part(void* arguments, const struct timespec* limit, const sigset_t* mask) {
  struct selected* const all = arguments;
  for (int i = 0; i < 3; ++i) {
    const size_t words = ((size_t)all->end + 8 * sizeof(long) - 1) / (8 * sizeof(long));
    if (all->sets[i] != NULL) memcpy(all->sets[i], &all->wanted[i], words * sizeof(long));
  }
  return NEXT(pselect)(all->end, all->sets[0], all->sets[1], all->sets[2], limit, mask);
}

__attribute__((noinline)) static bool split_select(int end, fd_set* const sets[3], uint64_t limit,
                                                   const sigset_t* mask, uint64_t* deadline,
                                                   int* result) {
  if (end < 0 || end > FD_SETSIZE || NEXT(pselect) == NULL) return false;
  struct selected all;
  all.end = end;
  for (int i = 0; i < 3; ++i) {
    const size_t words = ((size_t)end + 8 * sizeof(long) - 1) / (8 * sizeof(long));
    all.sets[i] = sets[i];
    if (sets[i] != NULL) memcpy(&all.wanted[i], sets[i], words * sizeof(long));
  }
  *deadline = sum(loam_now(), limit);
  const struct wait wait = {select_part, &all, mask, *deadline};
  return split(&wait, result);
}

EXPORT int select(int end, fd_set* restrict reads, fd_set* restrict writes,
                  fd_set* restrict exceptions, struct timeval* restrict timeout) {
  if (__builtin_expect(loam_much_waits(), 0) &&
      (timeout == NULL || (timeout->tv_sec >= 0 && timeout->tv_sec < INT32_MAX &&
                           timeout->tv_usec >= 0 && timeout->tv_usec < 1000000))) {
    fd_set* const sets[3] = {reads, writes, exceptions};
    const uint64_t limit =
        timeout == NULL ? kForever
                        : (uint64_t)timeout->tv_sec * kSecond + (uint64_t)timeout->tv_usec * 1000;
    uint64_t deadline;
    int result;
    if (split_select(end, sets, limit, NULL, &deadline, &result)) {
      if (timeout != NULL && (result >= 0 || errno == EINTR)) {
        const uint64_t left = left_of(deadline);
        timeout->tv_sec = (time_t)(left / kSecond);
        timeout->tv_usec = (suseconds_t)(left % kSecond / 1000);
      }
      return result;
    }
  }
  return NEXT(select)(end, reads, writes, exceptions, timeout);
}

EXPORT int pselect(int end, fd_set* restrict reads, fd_set* restrict writes,
                   fd_set* restrict exceptions, const struct timespec* restrict timeout,
                   const sigset_t* restrict mask) {
  uint64_t limit = kForever;
  if (__builtin_expect(loam_much_waits(), 0) &&
      (timeout == NULL || read_timespec(timeout, &limit))) {
    fd_set* const sets[3] = {reads, writes, exceptions};
    uint64_t deadline;
    int result;
    if (split_select(end, sets, limit, mask, &deadline, &result)) return result;
  }
  return NEXT(pselect)(end, reads, writes, exceptions, timeout, mask);
}

/* ---- epoll ----------------------------------------------------------------------------------- */

struct epolled {
  int file;
  struct epoll_event* events;
  int most;
};

/* Where epoll_pwait2() is missing, the rest of a split wait ends late by less than a millisecond.
 */
static int epoll_part(void* arguments, const struct timespec* limit, const sigset_t* mask) {
  const struct epolled* const polled = arguments;
  int ms = -1;
  if (limit != NULL) {
    const bool is_even = limit->tv_nsec % (long)kMs == 0 && limit->tv_sec < INT_MAX / 1000;
    if (!is_even && NEXT(epoll_pwait2) != NULL) {
      const int errno_before = errno;
      const int result =
          NEXT(epoll_pwait2)(polled->file, polled->events, polled->most, limit, mask);
      if (result >= 0 || (errno != ENOSYS && errno != EPERM && errno != EACCES)) return result;
      errno = errno_before;
    }
    ms = limit->tv_sec >= INT_MAX / 1000
             ? INT_MAX
             : (int)limit->tv_sec * 1000 + (int)((limit->tv_nsec + (long)kMs - 1) / (long)kMs);
  }
  return NEXT(epoll_pwait)(polled->file, polled->events, polled->most, ms, mask);
}

__attribute__((noinline)) static bool split_epoll(int file, struct epoll_event* events, int most,
                                                  uint64_t limit, const sigset_t* mask,
                                                  int* result) {
  struct epolled polled = {file, events, most};
  const struct wait wait = {epoll_part, &polled, mask, sum(loam_now(), limit)};
  return NEXT(epoll_pwait) != NULL && split(&wait, result);
}

EXPORT int epoll_wait(int file, struct epoll_event* events, int most, int timeout) {
  int result;
  if (__builtin_expect(timeout != 0 && loam_much_waits(), 0) &&
      split_epoll(file, events, most, timeout < 0 ? kForever : (uint64_t)timeout * kMs, NULL,
                  &result))
    return result;
  return NEXT(epoll_wait)(file, events, most, timeout);
}

EXPORT int epoll_pwait(int file, struct epoll_event* events, int most, int timeout,
                       const sigset_t* mask) {
  int result;
  if (__builtin_expect(timeout != 0 && loam_much_waits(), 0) &&
      split_epoll(file, events, most, timeout < 0 ? kForever : (uint64_t)timeout * kMs, mask,
                  &result))
    return result;
  return NEXT(epoll_pwait)(file, events, most, timeout, mask);
}

EXPORT int epoll_pwait2(int file, struct epoll_event* events, int most,
                        const struct timespec* timeout, const sigset_t* mask) {
  if (NEXT(epoll_pwait2) == NULL) {
    errno = ENOSYS;
    return -1;
  }
  int result;
  uint64_t limit = kForever;
  if (__builtin_expect(loam_much_waits(), 0) &&
      (timeout == NULL || read_timespec(timeout, &limit)) &&
      split_epoll(file, events, most, limit, mask, &result))
    return result;
  return NEXT(epoll_pwait2)(file, events, most, timeout, mask);
}

/* ---- sleep ----------------------------------------------------------------------------------- */

/* As clock_nanosleep(): 0 or a number of an error. False: the sleep is not split. */
__attribute__((noinline)) static bool split_sleep(uint64_t deadline, int* result) {
  const uint64_t left = left_of(deadline);
  /* ppoll() may end so much later: a two-hundredth, and at most a tenth of a second. */
  uint64_t late = left / 128;
  if (late < kMs) late = kMs;
  if (late > kSecond / 5) late = kSecond / 5;
  if (left <= late || NEXT(ppoll) == NULL || NEXT(clock_nanosleep) == NULL) return false;
  struct polled none = {NULL, 0};
  const struct wait wait = {poll_part, &none, NULL, deadline - late};
  const int errno_before = errno;
  if (!split(&wait, result)) return false;
  if (*result < 0) {
    *result = errno;
    errno = errno_before;
    return true;
  }
  /* By its length: libraries that change the time know nothing of this clock. */
  const struct timespec rest = timespec_of(left_of(deadline));
  *result = NEXT(clock_nanosleep)(CLOCK_MONOTONIC, 0, &rest, NULL);
  return true;
}

/* A sleep of so long from now. */
static bool split_sleep_for(uint64_t ns, struct timespec* left, int* result) {
  const uint64_t deadline = sum(loam_now(), ns);
  if (!split_sleep(deadline, result)) return false;
  if (*result == EINTR && left != NULL) *left = timespec_of(left_of(deadline));
  return true;
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec* wanted,
                           struct timespec* left) {
  int result;
  uint64_t ns;
  /* A sleep by the wall clock must see when that is set. The length of a relative one does not
   * change. */
  const bool is_plain = clock == CLOCK_MONOTONIC || (clock == CLOCK_REALTIME && flags == 0);
  if (__builtin_expect(loam_much_waits(), 0) && is_plain && (flags & ~TIMER_ABSTIME) == 0 &&
      read_timespec(wanted, &ns) &&
      ((flags & TIMER_ABSTIME) != 0 ? split_sleep(ns, &result)
                                    : split_sleep_for(ns, left, &result)))
    return result;
  return NEXT(clock_nanosleep)(clock, flags, wanted, left);
}

EXPORT int nanosleep(const struct timespec* wanted, struct timespec* left) {
  int result;
  uint64_t ns;
  if (__builtin_expect(loam_much_waits(), 0) && read_timespec(wanted, &ns) &&
      split_sleep_for(ns, left, &result)) {
    if (result == 0) return 0;
    errno = result;
    return -1;
  }
  return NEXT(nanosleep)(wanted, left);
}

EXPORT int usleep(useconds_t us) {
  int result;
  if (__builtin_expect(loam_much_waits(), 0) &&
      split_sleep_for((uint64_t)us * 1000, NULL, &result)) {
    if (result == 0) return 0;
    errno = result;
    return -1;
  }
  return NEXT(usleep)(us);
}

EXPORT unsigned sleep(unsigned seconds) {
  int result;
  struct timespec left = {0, 0};
  if (__builtin_expect(loam_much_waits(), 0) &&
      split_sleep_for((uint64_t)seconds * kSecond, &left, &result))
    return result == 0 ? 0 : (unsigned)left.tv_sec;
  return NEXT(sleep)(seconds);
}

#else
typedef int nothing_to_do_here; /* a file must have a declaration in it */
#endif
