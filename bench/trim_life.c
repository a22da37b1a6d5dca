// Programs that check themselves while bench/trim-long trims them.
//   trim_life KIND, of those at the end
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
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

// A rest has milliseconds: many programs run on few processors.
enum { kBlocks = 4000, kRoutines = 50, kStack = 64 << 10, kRest = 50 };

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

static void make_routines(void (*runs)(void)) {
  for (int at = 0; at < kRoutines; at++) {
    getcontext(&routines[at]);
    routines[at].uc_stack.ss_sp = malloc(kStack);
    routines[at].uc_stack.ss_size = kStack;
    routines[at].uc_link = &scheduler;
    makecontext(&routines[at], runs, 0);
  }
}

static void coroutines(void) {
  make_routines(routine);
  for (int round = 0; round % 100 != 0 || !is_over(kRest); round++) {
    current = round % kRoutines;
    swapcontext(&scheduler, &routines[current]);
  }
}

// A server of coroutines: each serves a client's connection on a stack of its own. The client is
// another process, which checks each answer.
enum { kClients = 40 };
static int connections[kClients];

static size_t length_of(uint32_t request) { return 1 + request * 7919u % 20000; }

static void serve(void) {
  int connection = connections[current];
  for (;;) {
    uint32_t request;
    ssize_t got = recv(connection, &request, sizeof request, MSG_DONTWAIT);
    if (got == sizeof request) {
      size_t length = length_of(request);
      unsigned char* answer = malloc(length);
      memset(answer, (int)request, length);
      // What it holds across a switch has to be there behind it.
      swapcontext(&routines[current], &scheduler);
      for (size_t sent = 0; sent < length;) {
        ssize_t part = send(connection, answer + sent, length - sent, MSG_DONTWAIT);
        if (part > 0) sent += (size_t)part;
        if (part < 0 && errno != EAGAIN && errno != EINTR) fail("send");
        if (part < 0) swapcontext(&routines[current], &scheduler);
      }
      free(answer);
    } else if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
      fail("a client: it ended, or it saw a wrong answer");
    }
    swapcontext(&routines[current], &scheduler);
  }
}

static void receive(int connection, void* bytes, size_t length) {
  for (size_t had = 0; had < length;) {
    ssize_t got = recv(connection, (char*)bytes + had, length - had, 0);
    if (got > 0) had += (size_t)got;
    // The server has ended.
    if (got == 0) _exit(0);
    if (got < 0 && errno != EINTR) _exit(4);
  }
}

static void be_clients(const int* ends) {
  static unsigned char answer[20001];
  for (uint32_t request = 1;; request += kClients) {
    for (uint32_t at = 0; at < kClients; at++) {
      uint32_t asks = request + at;
      if (send(ends[at], &asks, sizeof asks, MSG_NOSIGNAL) != sizeof asks) _exit(0);
    }
    for (uint32_t at = 0; at < kClients; at++) {
      size_t length = length_of(request + at);
      receive(ends[at], answer, length);
      for (size_t byte = 0; byte < length; byte++) {
        if (answer[byte] != (unsigned char)(request + at)) _exit(5);
      }
    }
  }
}

static void server(void) {
  int others[kClients];
  for (int at = 0; at < kClients; at++) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("socketpair");
    connections[at] = ends[0];
    others[at] = ends[1];
  }
  if (fork() == 0) {
    for (int at = 0; at < kClients; at++) close(connections[at]);
    be_clients(others);
  }
  for (int at = 0; at < kClients; at++) close(others[at]);
  make_routines(serve);
  for (int round = 0; round % 100 != 0 || !is_over(kRest); round++) {
    current = round % kClients;
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
  struct itimerval often = {{0, 4000}, {0, 4000}};
  setitimer(ITIMER_REAL, &often, NULL);
  while (!is_over(kRest)) {
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
  while (!is_over(kRest)) {
    turn(&set, 300);
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
      turn(&set, 1000);
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
  turn(set, 1000);
  for (int at = 0; at < kBlocks; at++) free(set->blocks[at]);
  free(set);
  return NULL;
}

static void threads(void) {
  static struct Set set = {.seed = 5};
  for (uintptr_t round = 0; !is_over(kRest); round++) {
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
  while (!is_over(1)) turn(&set, 500);
}

// Signal handlers on a stack of their own, which lies on the heap.
static void alternate(void) {
  stack_t other = {.ss_sp = malloc(kStack), .ss_size = kStack};
  sigaltstack(&other, NULL);
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART | SA_ONSTACK};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval often = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &often, NULL);
  static struct Set set = {.seed = 7};
  while (!is_over(kRest)) {
    for (int round = 0; round < 10; round++) {
      sig_atomic_t before = came;
      turn(&set, 50);
      while (came == before) pause();
    }
  }
  memset(&often, 0, sizeof often);
  setitimer(ITIMER_REAL, &often, NULL);
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// Sleeps, which may not end early, and reads that another thread answers.
static int channel[2];
static void* writes(void* unused) {
  struct timespec time = {0, 3000000};
  for (unsigned char next = 0; write(channel[1], &next, 1) == 1; next++) nanosleep(&time, NULL);
  return unused;
}
static void waits(void) {
  static struct Set set = {.seed = 8};
  pthread_t writer;
  if (pipe(channel) != 0 || pthread_create(&writer, NULL, writes, NULL) != 0) fail("a thread");
  for (unsigned char next = 0; !is_over(0); next++) {
    struct timespec time = {0, 2000000};
    uint64_t begun = now();
    if (nanosleep(&time, NULL) != 0) fail("nanosleep");
    if (now() - begun < 2000000) fail("a sleep was short");
    unsigned char byte;
    if (read(channel[0], &byte, 1) != 1 || byte != next) fail("read");
    turn(&set, 100);
  }
}

// Blocks that grow and shrink in place and elsewhere.
static void resized(void) {
  static struct Set set = {.seed = 9};
  while (!is_over(kRest)) {
    for (int step = 0; step < 100; step++) {
      size_t at = (size_t)rand_r(&set.seed) % (kBlocks / 4), size = set.sizes[at];
      unsigned char* block = set.blocks[at];
      size_t next = 100 + (size_t)rand_r(&set.seed) % (rand_r(&set.seed) % 8 == 0 ? 200000 : 9000);
      block = realloc(block, next);
      size_t same = size < next ? size : next;
      for (size_t byte = 0; byte < same; byte++) {
        if (block[byte] != (unsigned char)(at + byte)) fail("a byte of a block that was resized");
      }
      for (size_t byte = same; byte < next; byte++) block[byte] = (unsigned char)(at + byte);
      set.blocks[at] = block;
      set.sizes[at] = next;
    }
  }
}

int main(int count, char** words) {
  static const struct {
    const char* name;
    void (*run)(void);
  } kinds[] = {{"coroutines", coroutines}, {"server", server},   {"signals", signals},
               {"forks", forks},           {"threads", threads}, {"churn", churn},
               {"alternate", alternate},   {"waits", waits},     {"resized", resized}};
  for (size_t at = 0; count > 1 && at < sizeof kinds / sizeof *kinds; at++) {
    if (strcmp(words[1], kinds[at].name) != 0) continue;
    puts("ready");
    fflush(stdout);
    kinds[at].run();
    puts("whole");
    return 0;
  }
  fprintf(
      stderr,
      "usage: trim_life coroutines|server|signals|forks|threads|churn|alternate|waits|resized\n");
  return 2;
}
