// posix_spawn, vfork and popen work from a program with a big heap and busy threads.
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "check.h"

extern char** environ;
static atomic_bool stop;

static void* churn(void* argument) {
  uint64_t seed = (uint64_t)(uintptr_t)argument + 1;
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    free(opaque(malloc(next_random(&seed) % 10000)));
  }
  return NULL;
}

static void wait_for(pid_t pid) {
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK_EQUAL(status, 0);
}

int main(void) {
  char* const big = malloc((size_t)200 << 20);
  CHECK(big != NULL);
  memset(big, 1, (size_t)200 << 20);
  pthread_t threads[2];
  for (uintptr_t i = 0; i < 2; ++i) {
    CHECK_EQUAL(pthread_create(&threads[i], NULL, churn, (void*)i), 0);
  }
  for (int i = 0; i < 30; ++i) {
    char* arguments[] = {(char*)"true", NULL};
    pid_t pid = 0;
    CHECK_EQUAL(posix_spawnp(&pid, "true", NULL, NULL, arguments, environ), 0);
    wait_for(pid);
    pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
      execlp("true", "true", (char*)NULL);
      _exit(127);
    }
    wait_for(pid);
    FILE* const pipe = popen("echo hello", "r");
    CHECK(pipe != NULL);
    char text[16] = "";
    CHECK(fgets(text, sizeof text, pipe) != NULL && strcmp(text, "hello\n") == 0);
    CHECK_EQUAL(pclose(pipe), 0);
  }
  atomic_store(&stop, true);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  free(big);
  return 0;
}
