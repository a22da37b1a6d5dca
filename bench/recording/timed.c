// Runs a program and appends its cost to a file: seconds of wall time and of processor time.
//
//     timed FILE PROGRAM [ARGUMENT...]
//
// Under `loam record` these are the times of the program alone, without the recording's own
// process.
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char** environ;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double seconds(struct timeval time) {
  return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

int main(int count, char** arguments) {
  if (count < 3) return 2;
  pid_t child;
  const double begin = now();
  if (posix_spawnp(&child, arguments[2], NULL, NULL, arguments + 2, environ) != 0) return 127;
  int status = 0;
  struct rusage used;
  if (wait4(child, &status, 0, &used) != child) return 2;
  char text[64];
  const int size = snprintf(text, sizeof text, "%.6f %.6f\n", now() - begin,
                            seconds(used.ru_utime) + seconds(used.ru_stime));
  const int file = open(arguments[1], O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file < 0 || write(file, text, (size_t)size) != size) return 2;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
