/* A group of processes that share their memory by copy-on-write, for tests that look at one of
 * them: forked MIB [huge]. The master fills MIB MiB with blocks and forks three workers. Without
 * `huge` it has no huge pages. After each line on standard input it prints the group's proportional
 * bytes, KiB; `workers` prints their numbers. The workers end with it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { kWorkers = 3, kBlock = 2048 };
static pid_t group[kWorkers + 1];

static long proportional(pid_t process) {
  char path[64], line[256];
  snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)process);
  FILE* file = fopen(path, "r");
  if (!file) return -1;
  long found = -1;
  while (fgets(line, sizeof line, file)) sscanf(line, "Pss: %ld", &found);
  fclose(file);
  return found;
}

static void fill(long bytes) {
  for (long at = 0; at < bytes; at += kBlock) {
    char* block = malloc(kBlock);
    if (!block) abort();
    memset(block, 1, kBlock);
  }
}

int main(int count, char** words) {
  const long bytes = count > 1 ? atol(words[1]) << 20 : 64 << 20;
  if (count <= 2 || strcmp(words[2], "huge")) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  fill(bytes);
  group[0] = getpid();
  for (int i = 1; i <= kWorkers; ++i) {
    group[i] = fork();
    if (group[i] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() == group[0]) pause();
      _exit(0);
    }
  }
  puts("ready");
  fflush(stdout);
  char line[64];
  while (fgets(line, sizeof line, stdin)) {
    long sum = 0;
    if (!strncmp(line, "workers", 7)) {
      printf("%d %d %d\n", (int)group[1], (int)group[2], (int)group[3]);
    } else {
      for (int i = 0; i <= kWorkers; ++i) sum += proportional(group[i]);
      printf("%ld\n", sum);
    }
    fflush(stdout);
  }
  for (int i = 1; i <= kWorkers; ++i) kill(group[i], SIGKILL);
  return 0;
}
