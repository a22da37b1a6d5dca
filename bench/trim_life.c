// Programs that check themselves while bench/trim-long trims them.
//   trim_life coroutines|signals|forks|threads|churn
// Each says "ready", and "whole" after its input has ended.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { kBlocks = 4000, kRoutines = 50, kStack = 64 << 10 };

static void fail(const char* what) {
  printf("broken: %s: %s\n", what, strerror(errno));
  fflush(stdout);
  _exit(3);
}

// Blocks whose bytes tell their size, of which most are freed again and again.
struct Set {
  unsigned char* blocks[kBlocks];
  size_t sizes[kBlocks];
  unsigned seed;
};

static void turn(struct Set* set, int count) {
  for (int step = 0; step < count; step++) {
    size_t at = (size_t)rand_r(&set->seed) % kBlocks;
    unsigned char* block = set->blocks[at];
    size_t size = set->sizes[at];
    if (block != NULL) {
      if (block[0] != (unsigned char)size || block[size / 2] != (unsigned char)(size * 7) ||
          block[size - 1] != (unsigned char)size) {
        fail("a byte of a block");
      }
      free(block);
      set->blocks[at] = NULL;
    }
    if (rand_r(&set->seed) % 8 == 0) {
      size = 100 + (size_t)rand_r(&set->seed) % 30000;
      block = malloc(size);
      memset(block, (int)(size * 7), size);
      block[0] = block[size - 1] = (unsigned char)size;
      set->blocks[at] = block;
      set->sizes[at] = size;
    }
  }
}

static int is_over(int wait_ms) {
  struct pollfd input = {.fd = 0, .events = POLLIN};
  int ready = poll(&input, 1, wait_ms);
  if (ready < 0 && errno != EINTR) fail("poll");
  return ready > 0;
}

static ucontext_t scheduler, routines[kRoutines];
static int current;

static void routine(void) {
  struct Set* set = calloc(1, sizeof *set);
  set->seed = (unsigned)current + 1;
  for (;;) {
    turn(set, 20);
    swapcontext(&routines[current], &scheduler);
  }
}

static void coroutines(void) {
  for (int at = 0; at < kRoutines; at++) {
    getcontext(&routines[at]);
    routines[at].uc_stack.ss_sp = malloc(kStack);
    routines[at].uc_stack.ss_size = kStack;
    routines[at].uc_link = &scheduler;
    makecontext(&routines[at], routine, 0);
  }
  for (int round = 0; round % 100 != 0 || !is_over(1); round++) {
    current = round % kRoutines;
    swapcontext(&scheduler, &routines[current]);
  }
}

static volatile sig_atomic_t came;
static void on_alarm(int number) {
  (void)number;
  char page[3000];
  memset(page, 5, sizeof page);
  came = came + (page[2999] == 5);
}

static void signals(void) {
  static struct Set set = {.seed = 3};
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
  struct itimerval often = {{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &often, NULL);
  while (!is_over(1)) {
    sig_atomic_t before = came;
    for (int i = 0; i < 100; i++) raise(SIGUSR1);
    if (came < before + 100) fail("a signal was lost");
    turn(&set, 100);
  }
  memset(&often, 0, sizeof often);
  setitimer(ITIMER_REAL, &often, NULL);
}

static void forks(void) {
  static struct Set set = {.seed = 4};
  while (!is_over(1)) {
    turn(&set, 300);
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
      turn(&set, 3000);
      _exit(7);
    }
    int status;
    while (waitpid(child, &status, 0) != child) {
      if (errno != EINTR) fail("waitpid");
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) fail("a child");
  }
}

static void* lives_shortly(void* seed) {
  struct Set* set = calloc(1, sizeof *set);
  set->seed = (unsigned)(uintptr_t)seed;
  turn(set, 5000);
  for (int at = 0; at < kBlocks; at++) free(set->blocks[at]);
  free(set);
  return NULL;
}

static void threads(void) {
  static struct Set set = {.seed = 5};
  for (uintptr_t round = 0; !is_over(1); round++) {
    pthread_t some[4];
    for (uintptr_t at = 0; at < 4; at++) {
      if (pthread_create(&some[at], NULL, lives_shortly, (void*)(round * 4 + at)) != 0) {
        fail("a thread");
      }
    }
    turn(&set, 500);
    for (int at = 0; at < 4; at++) pthread_join(some[at], NULL);
  }
}

static void churn(void) {
  static struct Set set = {.seed = 6};
  while (!is_over(0)) turn(&set, 1000);
}

int main(int count, char** words) {
  static const struct {
    const char* name;
    void (*run)(void);
  } kinds[] = {{"coroutines", coroutines},
               {"signals", signals},
               {"forks", forks},
               {"threads", threads},
               {"churn", churn}};
  for (size_t at = 0; count > 1 && at < sizeof kinds / sizeof *kinds; at++) {
    if (strcmp(words[1], kinds[at].name) != 0) continue;
    puts("ready");
    fflush(stdout);
    kinds[at].run();
    puts("whole");
    return 0;
  }
  fprintf(stderr, "usage: trim_life coroutines|signals|forks|threads|churn\n");
  return 2;
}
