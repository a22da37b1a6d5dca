// Signal handlers that allocate at any moment, over an allocator that allows it (bump.c). They
// interrupt the recorder while it writes. `jump`: the handler leaves by siglongjmp. `fork`: it
// forks. `stack`: it has a stack of its own.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

static volatile unsigned long interrupted;
static volatile unsigned long jumps;
static sigjmp_buf place;
static volatile sig_atomic_t may_jump;
static const char* mode = "";

static void handle(int number) {
  (void)number;
  void* block = malloc(901);
  free(block);
  interrupted = interrupted + 1;
  if (strcmp(mode, "fork") == 0 && interrupted % 16 == 0) {
    const pid_t child = fork();
    if (child == 0) {
      free(malloc(903));
      if (interrupted % 32 == 0) _exit(0);
      return;  // continues the interrupted code
    }
  }
  if (may_jump && interrupted % 2 == 0) {
    jumps = jumps + 1;
    siglongjmp(place, 1);
  }
}

int main(int count, char** arguments) {
  if (count > 1) mode = arguments[1];
  const pid_t self = getpid();
  static char own_stack[256 * 1024];
  stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof own_stack};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  if (strcmp(mode, "stack") == 0) {
    CHECK(sigaltstack(&stack, NULL) == 0);
    action.sa_flags = SA_ONSTACK;
  }
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  const struct itimerval often = {{0, 200}, {0, 200}};
  const struct itimerval never = {{0, 0}, {0, 0}};
  CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
  volatile unsigned long done = 0;
  if (sigsetjmp(place, 1) == 0 && strcmp(mode, "jump") == 0) may_jump = 1;
  while (interrupted < 2000 && getpid() == self) {
    void* block = malloc(902);
    free(block);
    done = done + 1;
  }
  may_jump = 0;
  if (getpid() != self) {
    // A child that the handler made continued here.
    for (int i = 0; i < 10; ++i) free(malloc(904));
    _exit(0);
  }
  setitimer(ITIMER_REAL, &never, NULL);
  while (wait(NULL) > 0) {
  }
  // Afterwards everything works as before.
  for (int i = 0; i < 1000; ++i) free(malloc(905));
  expect_size(905, 1000, 1000);
  expect_size(901, interrupted, interrupted);
  if (strcmp(mode, "jump") != 0 && strcmp(mode, "fork") != 0) expect_size(902, done, done);
  if (strcmp(mode, "fork") == 0) expect_size(903, interrupted / 16, interrupted / 16);
  printf("jumps %lu\nexpect threads %lu\n", jumps,
         strcmp(mode, "fork") == 0 ? 1 + interrupted / 16 : 1);
  return 0;
}
