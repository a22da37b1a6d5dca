// Forks while other threads allocate.
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

enum { kThreads = 3, kForks = 100, kBlocks = 50 };

static atomic_bool is_over;
static atomic_ulong rounds;

static void* allocate(void* unused) {
  (void)unused;
  while (!atomic_load(&is_over)) {
    free(malloc(301));
    atomic_fetch_add(&rounds, 1);
    if (atomic_load(&rounds) % 64 == 0) usleep(100);
  }
  return NULL;
}

int main(void) {
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) CHECK(pthread_create(&threads[i], NULL, allocate, NULL) == 0);
  for (int i = 0; i < kForks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (int block = 0; block < kBlocks; ++block) free(malloc(302));
      _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  atomic_store(&is_over, 1);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  expect_size(301, atomic_load(&rounds), atomic_load(&rounds));
  expect_size(302, kForks * kBlocks, kForks * kBlocks);
  printf("expect processes %d\nexpect threads %d\n", 1 + kForks, 1 + kThreads + kForks);
  return 0;
}
