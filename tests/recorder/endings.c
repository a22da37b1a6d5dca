// Ways to end. Earlier allocations must be in the recording. endings abort|kill|_exit|thread|segv
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "program.h"

static void* exit_here(void* unused) {
  (void)unused;
  free(malloc(1002));
  exit(0);
}

int main(int count, char** arguments) {
  CHECK(count > 1);
  expect_size(1001, 20000, 20000);
  printf("expect processes 1\n");
  fflush(stdout);
  for (int i = 0; i < 20000; ++i) free(malloc(1001));
  const char* end = arguments[1];
  if (strcmp(end, "abort") == 0) abort();
  if (strcmp(end, "kill") == 0) kill(getpid(), SIGKILL);
  if (strcmp(end, "segv") == 0) raise(SIGSEGV);
  if (strcmp(end, "_exit") == 0) _exit(0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, exit_here, NULL) == 0);
  pause();
  return 1;
}
