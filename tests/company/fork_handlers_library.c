// A library whose constructor registers fork handlers, as OpenBLAS does (OpenBLAS#2270, dmtcp#612).
// Each handler allocates, starts and joins threads that allocate, and stops or starts a worker. The
// tests beside this file let the heap's own handlers run before these, or after them.
//
// FORK_EARLY=1: the constructor also starts a thread that allocates, and forks. All of this happens
// before any constructor of the heap.
#include "fork_handlers_library.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void* (*take)(size_t) = &malloc;
static void (*give)(void*) = &free;

struct counts fork_handler_calls;

void fork_handlers_use(void* (*its_malloc)(size_t), void (*its_free)(void*)) {
  take = its_malloc;
  give = its_free;
}

void fork_handlers_allocate(void) {
  // A small block, a run of pages, and a mapping of its own. No thread has kept one from the last
  // time.
  static const size_t sizes[] = {24, 700, 9000, 70000, 600000, (size_t)40 << 20};
  static _Thread_local unsigned turn;
  void* blocks[64];
  ++turn;
  for (unsigned i = 0; i < 64; ++i) {
    const size_t size = sizes[i < 32 ? i % 3 : i % 5] + turn % 50 * 16;
    blocks[i] = take(size);
    if (blocks[i] == NULL) abort();
    *(volatile char*)blocks[i] = 1;
  }
  void* const large = take(sizes[5]);
  if (large == NULL) abort();
  give(large);
  for (unsigned i = 0; i < 64; ++i) give(blocks[i]);
}

static void* ends(void* argument) {
  fork_handlers_allocate();
  return argument;
}

static void start_and_join(void) {
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) {
    if (pthread_create(&threads[i], NULL, ends, NULL) != 0) abort();
  }
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
}

static pthread_t worker;
static volatile int worker_stops;
static int worker_runs;

static void* work(void* argument) {
  while (!worker_stops) {
    fork_handlers_allocate();
    usleep(100);
  }
  return argument;
}

static void start_worker(void) {
  worker_stops = 0;
  if (pthread_create(&worker, NULL, work, NULL) != 0) abort();
  worker_runs = 1;
}

static void handle(void) {
  fork_handlers_allocate();
  start_and_join();
}

static void prepare(void) {
  ++fork_handler_calls.prepare;
  handle();
  if (worker_runs) {
    worker_stops = 1;
    pthread_join(worker, NULL);  // the end of the thread empties its cache
  }
  handle();
}

static void parent(void) {
  ++fork_handler_calls.parent;
  handle();
  start_worker();
}

static void child(void) {
  ++fork_handler_calls.child;
  handle();
  start_worker();
}

static void fork_early(void) {
  start_worker();
  for (int i = 0; i < 20; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(30);
      fork_handlers_allocate();
      _exit(0);
    }
    int status = 1;
    if (waitpid(pid, &status, 0) != pid || status != 0) abort();
  }
}

__attribute__((constructor(101))) static void register_handlers(void) {
  const char* const early = getenv("FORK_EARLY");
  if (early != NULL) fork_early();
  pthread_atfork(prepare, parent, child);
}
