// fork in a program whose other threads are in the middle of malloc and free. The child can
// allocate, free what the parent allocated, start threads and exit; the parent continues.
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "check.h"

enum { kThreads = 4, kForks = 60, kBlocks = 400 };

static atomic_bool stop;
static void* shared_blocks[kBlocks];

static void* churn(void* argument) {
  uint64_t seed = (uint64_t)(uintptr_t)argument + 1;
  void* own[64] = {0};
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    const size_t slot = next_random(&seed) % 64;
    free(own[slot]);
    const uint64_t random = next_random(&seed);
    own[slot] = malloc(1 + (random >> 8) % (random % 100 == 0 ? 2000000 : 3000));
    CHECK(own[slot] != NULL);
    *(volatile char*)own[slot] = 1;
  }
  for (int i = 0; i < 64; ++i) free(own[i]);
  return NULL;
}

static void* child_thread(void* argument) {
  (void)argument;
  for (size_t i = 0; i < 500; ++i) free(opaque(malloc(i * 7)));
  return opaque(malloc(100));
}

static void child(void) {
  alarm(60);  // A lock that the fork left held must end the child, not hang the test.
  for (int i = 0; i < kBlocks; ++i) {
    CHECK(has_pattern(shared_blocks[i], 100, (uint64_t)i));
    free(shared_blocks[i]);
  }
  for (size_t size = 1; size < (size_t)8 << 20; size = size * 3 / 2 + 1) {
    char* const block = opaque(malloc(size));
    CHECK(block != NULL);
    block[size - 1] = 1;
    free(block);
  }
  pthread_t thread;
  void* result = NULL;
  CHECK_EQUAL(pthread_create(&thread, NULL, child_thread, NULL), 0);
  CHECK_EQUAL(pthread_join(thread, &result), 0);
  free(result);
  const pid_t grandchild = fork();
  CHECK(grandchild >= 0);
  if (grandchild == 0) {
    free(opaque(malloc(5000)));
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(grandchild, &status, 0) == grandchild);
  CHECK_EQUAL(status, 0);
  exit(0);  // Not _exit, because a child runs the exit handlers too.
}

int main(void) {
  for (int i = 0; i < kBlocks; ++i) {
    shared_blocks[i] = malloc(100);
    CHECK(shared_blocks[i] != NULL);
    fill_pattern(shared_blocks[i], 100, (uint64_t)i);
  }
  pthread_t threads[kThreads];
  for (uintptr_t i = 0; i < kThreads; ++i) {
    CHECK_EQUAL(pthread_create(&threads[i], NULL, churn, (void*)i), 0);
  }
  for (int i = 0; i < kForks; ++i) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) child();
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQUAL(status, 0);
  }
  atomic_store(&stop, true);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < kBlocks; ++i) {
    CHECK(has_pattern(shared_blocks[i], 100, (uint64_t)i));
    free(shared_blocks[i]);
  }
  return 0;
}
