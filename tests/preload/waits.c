// A wait of a process whose peak came back before, and then stays away, gives the peak back, and
// ends as it would have ended: at its time, with its result, by its signal, by a cancellation.
//
// The heap keeps such a peak, so what goes in a wait shows that the wait was split, and when. A
// helper looks at that without the C library's waits. Each case runs in a child of its own.
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

enum { kBlocks = 64 << 10, kBytes = 500, kRounds = 3, kMostKept = 10 << 10 /* KiB */ };
static void* blocks[kBlocks];

static void round_of_work(void) {
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = opaque(malloc(kBytes));
    CHECK(blocks[i] != NULL);
    memset(blocks[i], 1, kBytes);
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
}

static long before, full;  // KiB
static void come_back(void) {
  memset(blocks, 1, sizeof blocks);  // the table is not in the heap
  free(opaque(malloc(100)));
  before = resident_kib();
  for (int i = 0; i < kRounds; ++i) round_of_work();
  full = resident_kib();
  CHECK(full > before + 2 * kMostKept);
}

static uint64_t now_ns(clockid_t clock) {
  struct timespec now;
  CHECK_EQUAL(clock_gettime(clock, &now), 0);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// ---- the waits ----------------------------------------------------------------------------------

static int ends[2], polled;
static sigset_t open_mask;  // nothing is blocked
static const uint64_t kEver = UINT64_MAX;

static struct timespec span_of(uint64_t ns) {
  const struct timespec span = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  return span;
}
static int ms_of(uint64_t ns) { return ns == kEver ? -1 : (int)(ns / 1000000); }

// Each waits for the pipe, at most so long. 1: the pipe is ready, and the results say so; 0: the
// limit; -1: errno.
static int by_poll(uint64_t ns) {
  struct pollfd file[2] = {{-1, POLLIN, 0}, {ends[0], POLLIN, 0}};
  const int result = poll(file, 2, ms_of(ns));
  CHECK(result <= 0 || file[1].revents == POLLIN);
  return result;
}
static int by_ppoll(uint64_t ns) {
  struct pollfd file = {ends[0], POLLIN, 0};
  const struct timespec span = span_of(ns);
  const int result = ppoll(&file, 1, ns == kEver ? NULL : &span, &open_mask);
  CHECK(result <= 0 || file.revents == POLLIN);
  return result;
}
static void want(fd_set* sets) {
  FD_ZERO(&sets[0]);
  FD_ZERO(&sets[1]);
  FD_SET(ends[0], &sets[0]);
}
static void check_sets(int result, fd_set* sets) {
  if (result >= 0) CHECK_EQUAL(FD_ISSET(ends[0], &sets[0]) != 0, result);
}
static int by_select(uint64_t ns) {
  fd_set sets[2];
  want(sets);
  struct timeval left = {(time_t)(ns / 1000000000u), (suseconds_t)(ns % 1000000000u / 1000)};
  const struct timeval wanted = left;
  const int result = select(ends[0] + 1, &sets[0], NULL, &sets[1], ns == kEver ? NULL : &left);
  check_sets(result, sets);
  if (ns != kEver && result == 0) CHECK(left.tv_sec == 0 && left.tv_usec == 0);
  if (ns != kEver && result != 0) CHECK(timercmp(&left, &wanted, <) && timerisset(&left));
  return result;
}
static int by_pselect(uint64_t ns) {
  fd_set sets[2];
  want(sets);
  const struct timespec span = span_of(ns);
  const int result =
      pselect(ends[0] + 1, &sets[0], NULL, &sets[1], ns == kEver ? NULL : &span, &open_mask);
  check_sets(result, sets);
  return result;
}
static int check_event(int result, const struct epoll_event* event) {
  CHECK(result <= 0 || (event->events == EPOLLIN && event->data.fd == ends[0]));
  return result;
}
static int by_epoll_wait(uint64_t ns) {
  struct epoll_event event;
  return check_event(epoll_wait(polled, &event, 1, ms_of(ns)), &event);
}
static int by_epoll_pwait(uint64_t ns) {
  struct epoll_event event;
  return check_event(epoll_pwait(polled, &event, 1, ms_of(ns), &open_mask), &event);
}
static int check_left(int error, uint64_t ns, const struct timespec* left) {
  if (error == 0) return 0;
  const uint64_t rest = (uint64_t)left->tv_sec * 1000000000u + (uint64_t)left->tv_nsec;
  CHECK(error != EINTR || (rest != 0 && rest < ns));
  errno = error;
  return -1;
}
static uint64_t long_for(uint64_t ns) { return ns == kEver ? 3600 * 1000000000ull : ns; }
static int by_nanosleep(uint64_t ns) {
  const struct timespec span = span_of(long_for(ns));
  struct timespec left = {0, 0};
  return check_left(nanosleep(&span, &left) == 0 ? 0 : errno, long_for(ns), &left);
}
static int by_clock_nanosleep(uint64_t ns) {
  const struct timespec span = span_of(long_for(ns));
  struct timespec left = {0, 0};
  return check_left(clock_nanosleep(CLOCK_MONOTONIC, 0, &span, &left), long_for(ns), &left);
}
static int by_sleep_until(uint64_t ns) {
  const struct timespec end = span_of(now_ns(CLOCK_MONOTONIC) + long_for(ns));
  const int error = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
  errno = error;
  return error == 0 ? 0 : -1;
}
static int by_usleep(uint64_t ns) { return usleep((useconds_t)(long_for(ns) / 1000)); }
static int by_sleep(uint64_t ns) {
  const unsigned seconds = (unsigned)((long_for(ns) + 999999999) / 1000000000);
  const unsigned left = sleep(seconds);
  CHECK(left < seconds);
  errno = EINTR;
  return left == 0 ? 0 : -1;
}

typedef struct {
  const char* name;
  int (*wait)(uint64_t ns);
  bool waits_for_files;
  bool has_mask;
} Form;
static const Form forms[] = {
    {"poll", by_poll, true, false},
    {"ppoll", by_ppoll, true, true},
    {"select", by_select, true, false},
    {"pselect", by_pselect, true, true},
    {"epoll_wait", by_epoll_wait, true, false},
    {"epoll_pwait", by_epoll_pwait, true, true},
    {"nanosleep", by_nanosleep, false, false},
    {"clock_nanosleep", by_clock_nanosleep, false, false},
    {"clock_nanosleep until", by_sleep_until, false, false},
    {"usleep", by_usleep, false, false},
    {"sleep", by_sleep, false, false},
};

// ---- the helper ---------------------------------------------------------------------------------

static pthread_t waiter;
static volatile sig_atomic_t handled;
static void handle(int number) {
  (void)number;
  handled = 1;
}

// As resident_kib(), but cheap, and some hundred KiB off.
static long about_resident_kib(void) {
  char text[256];
  CHECK(proc_text("/proc/self/statm", text, sizeof text) > 0);
  return atol(strchr(text, ' ')) * 4;
}

// Until resident memory is at most so many KiB.
static void wait_for_fall(long most) {
  while (about_resident_kib() > most) {
    const struct timespec moment = {0, 1000000};
    syscall(SYS_nanosleep, &moment, NULL);
  }
}

static void* write_when_small(void* unused) {
  wait_for_fall(before + kMostKept);
  CHECK_EQUAL(write(ends[1], "", 1), 1);
  return unused;
}
// In the middle of the fall: between two parts of the wait, or just after it.
static void* kill_while_it_falls(void* unused) {
  wait_for_fall(full - 2048);
  CHECK_EQUAL(pthread_kill(waiter, SIGUSR1), 0);
  return unused;
}
static void* kill_when_small(void* unused) {
  wait_for_fall(before + kMostKept);
  CHECK_EQUAL(pthread_kill(waiter, SIGUSR1), 0);
  return unused;
}

static void start(pthread_t* thread, void* (*body)(void*), void* argument) {
  pthread_attr_t attributes;
  CHECK_EQUAL(pthread_attr_init(&attributes), 0);
  CHECK_EQUAL(pthread_create(thread, &attributes, body, argument), 0);
}

// ---- the cases ----------------------------------------------------------------------------------

static sigset_t mask_of(void) {
  sigset_t mask;
  CHECK_EQUAL(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
  return mask;
}

static void ends_at_its_limit(const Form* form) {
  come_back();
  const uint64_t ns = 1000000000, began = now_ns(CLOCK_MONOTONIC);
  errno = E2BIG;
  const int result = form->wait(ns);
  const int error = errno;
  CHECK_EQUAL(result, 0);
  CHECK(now_ns(CLOCK_MONOTONIC) - began >= ns);
  if (form->wait != by_sleep && form->wait != by_sleep_until) CHECK_EQUAL(error, E2BIG);
  const long kept = resident_kib() - before;
  dprintf(2, "%s: %ld KiB, %ld afterwards\n", form->name, full - before, kept);
  // Where three rounds took seconds, they are waited for.
  while (resident_kib() > before + kMostKept) CHECK_EQUAL(form->wait(6000000000), 0);
}

static void ends_by_its_file(const Form* form) {
  if (!form->waits_for_files) return;
  come_back();
  pthread_t helper;
  start(&helper, write_when_small, NULL);
  CHECK_EQUAL(form->wait(form->has_mask ? kEver : 3600000000000), 1);
  CHECK(resident_kib() <= before + 2 * kMostKept);
  CHECK_EQUAL(pthread_join(helper, NULL), 0);
}

static void ends_by_a_signal(const Form* form, void* (*helper_body)(void*)) {
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  CHECK_EQUAL(sigaction(SIGUSR1, &action, NULL), 0);
  sigset_t blocked;
  CHECK(sigemptyset(&blocked) == 0 && sigaddset(&blocked, SIGUSR2) == 0);
  if (form->has_mask) CHECK_EQUAL(sigaddset(&blocked, SIGUSR1), 0);
  CHECK_EQUAL(pthread_sigmask(SIG_SETMASK, &blocked, NULL), 0);
  come_back();
  waiter = pthread_self();
  pthread_t helper;
  start(&helper, helper_body, NULL);
  CHECK_EQUAL(form->wait(kEver), -1);
  CHECK_EQUAL(errno, EINTR);
  CHECK_EQUAL(handled, 1);
  const sigset_t after = mask_of();
  for (int number = 1; number < 32; ++number)
    CHECK_EQUAL(sigismember(&after, number), sigismember(&blocked, number));
  CHECK_EQUAL(pthread_join(helper, NULL), 0);
}
static void ends_by_a_signal_in_the_fall(const Form* form) {
  ends_by_a_signal(form, kill_while_it_falls);
}
static void ends_by_a_signal_later(const Form* form) { ends_by_a_signal(form, kill_when_small); }

static void* wait_for_ever(void* form) {
  come_back();
  ((const Form*)form)->wait(kEver);
  return NULL;
}
static void ends_by_a_cancellation(const Form* form) {
  free(opaque(malloc(100)));
  before = LONG_MAX / 2;
  pthread_t thread;
  start(&thread, wait_for_ever, (void*)(uintptr_t)form);
  for (long peak = 0; about_resident_kib() > peak - kMostKept;) {
    if (about_resident_kib() > peak) peak = about_resident_kib();
    const struct timespec moment = {0, 1000000};
    syscall(SYS_nanosleep, &moment, NULL);
  }
  CHECK_EQUAL(pthread_cancel(thread), 0);
  void* result;
  CHECK_EQUAL(pthread_join(thread, &result), 0);
  CHECK(result == PTHREAD_CANCELED);
}

// A handler that waits may have interrupted malloc() at any place.
static void wait_in_handler(int number) {
  (void)number;
  const int error = errno;
  poll(NULL, 0, 800);
  errno = error;
  handled = 1;
}
static void waits_in_a_handler(const Form* form) {
  if (form != forms) return;
  struct sigaction action = {.sa_handler = wait_in_handler};
  CHECK_EQUAL(sigaction(SIGALRM, &action, NULL), 0);
  come_back();
  for (int i = 0; i < 2; ++i) {
    handled = 0;
    const struct itimerval soon = {{0, 0}, {0, 3000 + 1234 * i}};
    CHECK_EQUAL(setitimer(ITIMER_REAL, &soon, NULL), 0);
    while (!handled) round_of_work();
  }
}

// A handler may leave the wait by a jump.
static sigjmp_buf out;
static void jump(int number) {
  (void)number;
  siglongjmp(out, 1);
}
static void is_left_by_a_jump(const Form* form) {
  struct sigaction action = {.sa_handler = jump};
  CHECK_EQUAL(sigaction(SIGUSR1, &action, NULL), 0);
  come_back();
  waiter = pthread_self();
  pthread_t helper;
  start(&helper, kill_while_it_falls, NULL);
  if (sigsetjmp(out, 1) == 0) {
    form->wait(kEver);
    CHECK(false);
  }
  const sigset_t after = mask_of();
  for (int number = 1; number < 32; ++number) CHECK_EQUAL(sigismember(&after, number), 0);
  CHECK_EQUAL(pthread_join(helper, NULL), 0);
  round_of_work();
}

// Rounds with silences between them: after its first return a page costs no faults. On a busy
// machine a part of the peak may go in one silence and the rest in the next, so there is a second
// try. Rounds that take longer than such a peak is waited for show nothing.
static void comes_back_after_silences(const Form* form) {
  if (form != forms) return;
  memset(blocks, 1, sizeof blocks);
  const uint64_t most = 2500000000;
  const long pages = kBlocks / 8;
  for (int try = 0; try < 2; ++try) {
    long returns = 0;
    for (int i = 0; i < 5; ++i) {
      const uint64_t began = now_ns(CLOCK_MONOTONIC);
      const long faults_before = minor_faults();
      round_of_work();
      const long faults = minor_faults() - faults_before;
      CHECK_EQUAL(poll(NULL, 0, 900), 0);
      if (now_ns(CLOCK_MONOTONIC) - began > most) return;
      if (i >= 1) returns += faults;
    }
    if (returns < pages + pages / 2) return;
    dprintf(2, "%ld faults in four rounds of %ld pages\n", returns, pages);
  }
  CHECK(false);
}

// A sandbox that does not know the form of a call that takes a mask: the wait is as ever.
static void is_refused_a_mask(const Form* form) {
  if (form != forms) return;
  come_back();
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ppoll, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog filter = {sizeof program / sizeof program[0], program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    return;            // no filters here
#if defined(SYS_poll)  // elsewhere poll() is ppoll()
  errno = E2BIG;
  CHECK_EQUAL(poll(NULL, 0, 900), 0);
  CHECK_EQUAL(errno, E2BIG);
#endif
}

static void in_child(void (*act)(const Form*), const Form* form) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child != 0) return;
  CHECK(pipe(ends) == 0 && sigemptyset(&open_mask) == 0);
  polled = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN, .data.fd = ends[0]};
  CHECK(polled >= 0 && epoll_ctl(polled, EPOLL_CTL_ADD, ends[0], &event) == 0);
  act(form);
  _exit(0);
}

static void wait_for_children(const char* what) {
  int status;
  pid_t child;
  while ((child = wait(&status)) > 0) {
    if (status != 0) dprintf(2, "%s: a child ended with status %d\n", what, status);
    CHECK_EQUAL(status, 0);
  }
}

int main(void) {
  unsigned children = 0;
  static void (*const cases[])(const Form*) = {
      ends_at_its_limit,      ends_by_its_file,       ends_by_a_signal_in_the_fall,
      ends_by_a_signal_later, ends_by_a_cancellation, is_left_by_a_jump,
      waits_in_a_handler,     is_refused_a_mask,      comes_back_after_silences,
  };
  for (size_t i = 0; i < sizeof forms / sizeof *forms; ++i) {
    // The rarer cases with one of the forms that share their code.
    const size_t count = sizeof cases / sizeof *cases - (i % 2 == 0 ? 0 : 6);
    // A few at a time: with more, the rounds take so long that they are waited for.
    for (size_t c = 0; c < count; ++c) {
      in_child(cases[c], &forms[i]);
      if (++children % 6 == 0) wait_for_children(forms[i].name);
    }
  }
  wait_for_children("the last form");
  return 0;
}
