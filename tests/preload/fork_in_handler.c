// A signal handler interrupts malloc, free and realloc after every single instruction (the
// processor's trap flag) and forks, in a process with one thread. The child finishes the
// interrupted call and continues to allocate; the parent notices nothing. docs/architecture.md,
// "Signals", promises less.
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "check.h"

#if defined(__x86_64__)
enum { kTrapFlag = 0x100 };
static volatile sig_atomic_t stepping;
static volatile long steps;
static volatile long forks;
static volatile sig_atomic_t is_child;
static long fork_every;

static void on_trap(int signal, siginfo_t* info, void* context) {
  (void)signal;
  (void)info;
  greg_t* const flags = &((ucontext_t*)context)->uc_mcontext.gregs[REG_EFL];
  if (!stepping || is_child) {
    *flags &= ~(greg_t)kTrapFlag;
    return;
  }
  *flags |= kTrapFlag;
  if (++steps % fork_every != 0) return;
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    is_child = 1;
    alarm(60);
    *flags &= ~(greg_t)kTrapFlag;
    return;  // Returns into the interrupted call.
  }
  ++forks;
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK_EQUAL(status, 0);
}

// Runs in a child after the interrupted call has finished.
static void finish_child(void) {
  static void* kept[400];
  for (size_t i = 0; i < 400; ++i) {
    CHECK((kept[i] = malloc(i * 50)) != NULL);
    memset(kept[i], (int)i, i * 50);
  }
  for (size_t i = 0; i < 400; ++i) {
    if (i > 0) CHECK(*(unsigned char*)kept[i] == (unsigned char)i);
    free(kept[i]);
  }
  _exit(0);
}

static void step_through(void (*body)(void), long every) {
  fork_every = every;
  steps = forks = 0;
  stepping = 1;
  raise(SIGTRAP);
  body();
  stepping = 0;
  if (is_child) finish_child();
  if (steps == 0) SKIP("this system does not stop after each instruction");
}

static void* volatile first;
static void* volatile second;
static void fast(void) {
  first = malloc(100);
  free(first);
}
// These sizes have no earlier request, so magazines are filled, spans are taken and pages are
// committed.
static void slow(void) {
  first = malloc(1717);
  second = malloc(150000);
  first = realloc(first, 30000);
  free(first);
  free(second);
}

int main(void) {
  struct sigaction action = {0};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  CHECK_EQUAL(sigaction(SIGTRAP, &action, NULL), 0);
  free(opaque(malloc(100)));
  step_through(fast, 1);
  CHECK(forks > 20);
  step_through(slow, 41);
  dprintf(2, "%ld instructions, a fork after every 41st: %ld\n", (long)steps, (long)forks);
  CHECK(forks > 10);  // a heap may be short
  return 0;
}
#else
int main(void) { SKIP("the trap flag is x86-64's"); }
#endif
