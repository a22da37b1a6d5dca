// Functions that allocate where stacks are hard to follow: in a child of fork(), after exec(), in a
// library that is loaded late and unloaded, in a signal handler, in fifty threads. Each block is so
// large that its stack is recorded.
//
//   callers LIBRARY        the library is this file again, built with -DIN_LIBRARY
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

enum { kTimes = 20, kBytes = 100000, kThreads = 50 };

// No call here is the last action of its function, because it would then be a jump. Each requests
// another size; otherwise the compiler would merge the functions.
#define CALLER(name, more)                             \
  __attribute__((noinline, noclone)) void name(void) { \
    for (volatile int i = 0; i < kTimes; ++i) {        \
      char* volatile block = malloc(kBytes + (more));  \
      free(block);                                     \
    }                                                  \
  }

#if defined(IN_LIBRARY)
CALLER(in_library, 1)
#else
CALLER(in_main, 2)
CALLER(in_child, 3)
CALLER(in_next, 4)
CALLER(in_handler, 5)
CALLER(in_thread, 6)
CALLER(fills_the_ring, 7)

void handles(int signal_number);
void handles(int signal_number) {
  in_handler();
  CHECK(signal_number == SIGUSR1);
}

static void* runs(void* nothing) {
  in_thread();
  return nothing;
}

int main(int count, char** arguments) {
  CHECK(count > 1);
  if (strcmp(arguments[1], "next") == 0) {
    in_next();
    return 0;
  }
  in_main();
  CHECK(signal(SIGUSR1, handles) != SIG_ERR);
  CHECK(raise(SIGUSR1) == 0);
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) CHECK(pthread_create(&threads[i], NULL, runs, NULL) == 0);
  for (int i = 0; i < kThreads; ++i) CHECK(pthread_join(threads[i], NULL) == 0);

  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL);
  void (*work)(void);
  *(void**)&work = dlsym(library, "in_library");
  CHECK(work != NULL);
  work();
  // More events than a ring holds. When these are written, those of the library have been read.
  for (int i = 0; i < 60; ++i) fills_the_ring();
  CHECK(dlclose(library) == 0);

  const pid_t child = fork();
  if (child == 0) {
    in_child();
    execl("/proc/self/exe", arguments[0], "next", (char*)NULL);
    _exit(1);
  }
  int status = 1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  return 0;
}
#endif
