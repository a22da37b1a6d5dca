// Children of every kind: fork, vfork, spawn, a fork by system call, a child's child, and a process
// that forks in a thread.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

extern char** environ;

static void wait_for(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void work(size_t size) {
  for (int i = 0; i < 100; ++i) free(malloc(size));
}

static void* fork_in_thread(void* unused) {
  (void)unused;
  work(201);
  const pid_t child = fork();
  if (child == 0) {
    work(202);
    _exit(0);
  }
  wait_for(child);
  work(201);
  return NULL;
}

static void* work_in_thread(void* unused) {
  (void)unused;
  work(206);
  return NULL;
}

int main(int count, char** arguments) {
  if (count > 1 && strcmp(arguments[1], "child") == 0) {
    work(205);
    return 0;
  }
  fflush(stdout);
  void* inherited = malloc(200);
  pid_t child = fork();
  if (child == 0) {
    free(inherited);
    work(202);
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      work(203);
      // The child's first event is in a new thread.
      _exit(0);
    }
    wait_for(grandchild);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work_in_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    _exit(0);
  }
  wait_for(child);
  free(inherited);

  // A fork without the C library, so no handler of fork runs.
  child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    work(204);
    _exit(0);
  }
  wait_for(child);

  // Such a child shares our memory, and so our rings.
  child = vfork();
  if (child == 0) {
    work(207);
    _exit(0);
  }
  wait_for(child);
  work(207);

  char* words[] = {arguments[0], "child", NULL};
  CHECK(posix_spawn(&child, arguments[0], NULL, NULL, words, environ) == 0);
  wait_for(child);

  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, fork_in_thread, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);

  // The child frees a block that is only in its parent's ring.
  printf("expect size 200 allocated 1 freed 1\n");
  expect_size(201, 200, 200);
  expect_size(202, 200, 200);
  expect_size(203, 100, 100);
  expect_size(204, 100, 100);
  expect_size(205, 100, 100);
  expect_size(206, 100, 100);
  expect_size(207, 200, 200);
  printf("expect processes 6\n");
  return 0;
}
