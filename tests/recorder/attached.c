// A process that is recorded while it runs: threads that allocate all the time, blocks that live
// from the start, and commands on its standard input, one a line:
//
//   work     frees half of the old blocks, allocates 100 blocks of 6,007 bytes and frees 40
//   fork     a child that allocates, and ends
//   quit     ends, after threads have ended and others have begun
//
// With the argument "idle" no thread allocates, and nothing is called between the commands.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

enum { kThreads = 4, kBlocks = 64, kOld = 500, kNew = 100, kGone = 40 };

static atomic_bool ends;

static void* churn(void* seed) {
  void* blocks[kBlocks] = {0};
  unsigned random = (unsigned)(size_t)seed;
  for (unsigned i = 0; !atomic_load(&ends); ++i) {
    random = random * 1664525u + 1013904223u;
    void** block = &blocks[(random >> 10) % kBlocks];
    if (random >> 30 == 0) {
      *block = realloc(*block, 1 + (random >> 20) % 900);
    } else {
      free(*block);
      *block = random >> 28 == 15 ? aligned_alloc(64, 128) : malloc(1 + (random >> 20) % 900);
    }
    if (i % 64 == 0) usleep(100);
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  return NULL;
}

static void say(const char* text) { CHECK(write(1, text, strlen(text)) == (ssize_t)strlen(text)); }

static void start(pthread_t* threads) {
  atomic_store(&ends, false);
  for (size_t i = 0; i < kThreads; ++i)
    CHECK(pthread_create(&threads[i], NULL, churn, (void*)(i + 1)) == 0);
}

static void stop(pthread_t* threads) {
  atomic_store(&ends, true);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
}

int main(int count, char** arguments) {
  static void* old[kOld];
  static void* new[kNew];
  pthread_t threads[kThreads];
  const bool is_idle = count > 1 && strcmp(arguments[1], "idle") == 0;
  for (int i = 0; i < kOld; ++i) memset(old[i] = malloc(3001), i, 3001);
  void* const large = malloc(3 << 20);
  memset(large, 7, 3 << 20);
  if (!is_idle) start(threads);
  say("ready\n");
  char line[32];
  int next = 0;
  // Uses no stdio, which would allocate.
  for (ssize_t got; (got = read(0, line, sizeof line - 1)) > 0;) {
    line[got] = 0;
    if (strncmp(line, "work", 4) == 0) {
      for (int i = 0; i < kOld / 2 && next < kOld; ++i) free(old[next++]);
      for (int i = 0; i < kNew; ++i) CHECK((new[i] = malloc(6007)) != NULL);
      for (int i = 0; i < kGone; ++i) free(new[i]);
    } else if (strncmp(line, "fork", 4) == 0) {
      const pid_t child = fork();
      if (child == 0) {
        for (int i = 0; i < 1000; ++i) free(malloc(7011));
        _exit(0);
      }
      CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    } else {
      break;
    }
    say("done\n");
  }
  if (!is_idle) {
    stop(threads);
    start(threads);
    usleep(10000);
    stop(threads);
  }
  say("bye\n");
  return 0;
}
