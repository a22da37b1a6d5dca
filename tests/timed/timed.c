/* timed FILE NAME PROGRAM ARGUMENT... runs the program, and appends NAME, a tab, and the processor
 * seconds of the program and of the children that it waited for. It ends as the program did. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double seconds(struct timeval time) {
  return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

int main(int count, char** words) {
  if (count < 4) {
    fputs("timed FILE NAME PROGRAM ARGUMENT...\n", stderr);
    return 2;
  }
  unsetenv("LOAM_TEST_TIMES"); /* a test may run ctest itself */
  const pid_t child = fork();
  if (child < 0) {
    perror("timed: fork");
    return 1;
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* ctest kills a test that takes too long */
    execvp(words[3], words + 3);
    perror(words[3]);
    _exit(127);
  }
  int status = 0;
  struct rusage used;
  while (wait4(child, &status, 0, &used) < 0)
    if (errno != EINTR) {
      perror("timed: wait");
      return 1;
    }
  FILE* times = fopen(words[1], "a");
  if (times) {
    fprintf(times, "%s\t%.3f\n", words[2], seconds(used.ru_utime) + seconds(used.ru_stime));
    fclose(times);
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}
