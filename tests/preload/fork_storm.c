// Several threads fork at the same time while other threads allocate, and children fork again.
// Every child can allocate, free and exit, and the parent loses nothing.
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "check.h"

enum { kForkers = 4, kChurners = 3, kForks = 40 };
static atomic_bool stop;

static void* churn(void* argument) {
  uint64_t seed = (uint64_t)(uintptr_t)argument + 1;
  void* own[32] = {0};
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    const size_t slot = next_random(&seed) % 32;
    free(own[slot]);
    const size_t size = next_random(&seed) % 40000;
    own[slot] = malloc(size);
    CHECK(own[slot] != NULL);
  }
  for (int i = 0; i < 32; ++i) free(own[i]);
  return NULL;
}

_Noreturn static void child(int depth) {
  alarm(60);  // A lock that the fork left held must end the child, not hang the test.
  void* kept[100];
  for (size_t i = 0; i < 100; ++i) CHECK((kept[i] = malloc(i * 300)) != NULL);
  for (; depth > 0; --depth) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0) {
      int status = 0;
      CHECK(waitpid(pid, &status, 0) == pid);
      CHECK_EQUAL(status, 0);
      break;
    }
    for (int i = 0; i < 100; ++i) free(kept[i]);
    for (size_t i = 0; i < 100; ++i) CHECK((kept[i] = malloc(i * 301)) != NULL);
  }
  for (int i = 0; i < 100; ++i) free(kept[i]);
  _exit(0);
}

static void* fork_often(void* argument) {
  (void)argument;
  for (int i = 0; i < kForks; ++i) {
    char* const mine = malloc(5000);
    CHECK(mine != NULL);
    fill_pattern(mine, 5000, (uint64_t)i);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      CHECK(has_pattern(mine, 5000, (uint64_t)i));
      free(mine);
      child(i % 3);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQUAL(status, 0);
    CHECK(has_pattern(mine, 5000, (uint64_t)i));
    free(mine);
  }
  return NULL;
}

int main(void) {
  pthread_t churners[kChurners];
  pthread_t forkers[kForkers];
  for (uintptr_t i = 0; i < kChurners; ++i)
    CHECK_EQUAL(pthread_create(&churners[i], NULL, churn, (void*)i), 0);
  for (int i = 0; i < kForkers; ++i)
    CHECK_EQUAL(pthread_create(&forkers[i], NULL, fork_often, NULL), 0);
  for (int i = 0; i < kForkers; ++i) pthread_join(forkers[i], NULL);
  atomic_store(&stop, true);
  for (int i = 0; i < kChurners; ++i) pthread_join(churners[i], NULL);
  return 0;
}
