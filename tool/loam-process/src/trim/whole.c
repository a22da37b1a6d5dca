// A program that checks every byte of its blocks, and every call that a trim might interrupt.
// Arguments: how many threads churn beside the first one. It says "ready", and "whole" after its
// input has ended.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { kBlocks = 3000 };
static volatile int ends;
static pthread_barrier_t filled;
static volatile sig_atomic_t seen;

static void fail(const char* what) {
  printf("broken: %s\n", what);
  fflush(stdout);
  _exit(3);
}

struct Set {
  unsigned char* blocks[kBlocks];
  size_t sizes[kBlocks];
  unsigned seed;
};

static void check(struct Set* set, int at) {
  for (size_t byte = 0; byte < set->sizes[at]; byte++) {
    if (set->blocks[at][byte] != (unsigned char)at) fail("a byte of a block");
  }
}

static void take(struct Set* set, int at) {
  set->sizes[at] = 100 + rand_r(&set->seed) % 20000;
  if (at & 1) {
    set->blocks[at] = malloc(set->sizes[at]);
  } else {
    set->blocks[at] = calloc(1, set->sizes[at]);
    for (size_t byte = 0; byte < set->sizes[at]; byte++) {
      if (set->blocks[at][byte] != 0) fail("a byte of calloc");
    }
  }
  memset(set->blocks[at], at, set->sizes[at]);
}

static void give(struct Set* set, int at) {
  check(set, at);
  free(set->blocks[at]);
  set->blocks[at] = NULL;
}

static void churn(struct Set* set, int count) {
  for (int step = 0; step < count; step++) {
    int at = rand_r(&set->seed) % kBlocks;
    if (set->blocks[at] != NULL) give(set, at);
    if (rand_r(&set->seed) % 20 == 0) take(set, at);
  }
}

static struct Set* fill(unsigned seed) {
  struct Set* set = calloc(1, sizeof *set);
  set->seed = seed;
  for (int at = 0; at < kBlocks; at++) take(set, at);
  for (int at = 0; at < kBlocks; at++) {
    if (at % 40 != 0) give(set, at);
  }
  return set;
}

static void* thread(void* number) {
  struct Set* set = fill((unsigned)(size_t)number + 7);
  pthread_barrier_wait(&filled);
  while (!ends) {
    churn(set, 200);
    usleep(500);
  }
  for (int at = 0; at < kBlocks; at++) {
    if (set->blocks[at] != NULL) check(set, at);
  }
  return NULL;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void on_signal(int number) {
  (void)number;
  seen++;
}

int main(int count, char** words) {
  int threads = count > 1 ? atoi(words[1]) : 0;
  pthread_t others[64];
  struct sigaction action = {.sa_handler = on_signal};
  sigaction(SIGUSR1, &action, NULL);
  struct Set* set = fill(1);
  pthread_barrier_init(&filled, NULL, threads + 1);
  for (int at = 0; at < threads; at++) {
    pthread_create(&others[at], NULL, thread, (void*)(size_t)at);
  }
  pthread_barrier_wait(&filled);
  int waits = epoll_create1(0);
  puts("ready");
  fflush(stdout);
  struct pollfd input = {.fd = 0, .events = POLLIN};
  for (;;) {
    double begun = now();
    struct timespec rest = {0, 30000000};
    double vectors = begun * 3.0 + 1.0;
    if (nanosleep(&rest, NULL) != 0) fail("nanosleep");
    if (now() - begun < 0.03) fail("the time of nanosleep");
    if (vectors != begun * 3.0 + 1.0) fail("a vector register");
    struct epoll_event event;
    if (epoll_wait(waits, &event, 1, 10) != 0) fail("epoll_wait");
    int ready = poll(&input, 1, 10);
    if (ready < 0) fail("poll");
    if (ready > 0) break;
    for (int at = 0; at < kBlocks; at++) {
      if (set->blocks[at] != NULL) check(set, at);
    }
    int before = seen;
    raise(SIGUSR1);
    if (seen != before + 1) fail("a signal");
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    if (sigismember(&mask, SIGUSR1)) fail("the signal mask");
    churn(set, threads > 0 ? 20 : 5);
  }
  ends = 1;
  for (int at = 0; at < threads; at++) pthread_join(others[at], NULL);
  for (int at = 0; at < kBlocks; at++) {
    if (set->blocks[at] != NULL) give(set, at);
  }
  puts("whole");
  return 0;
}
