/* counts MODE [PRELOAD]: the cost of a start of this program from exec to exit, in page faults and
 * system calls.
 *
 * MODE is what the started copy does: "nothing", or "malloc" (one block, freed). Prints "faults N
 * calls M": the mean of many runs' faults (the places of mappings are random, and a fault or two
 * depend on them), and the calls of one run under ptrace. Exit: 0; 77 if the system forbids
 * tracing; 2 for an error. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kRuns = 200 };

static void die(const char* what) {
  fprintf(stderr, "counts: %s: %s\n", what, strerror(errno));
  exit(2);
}

static pid_t start(char* const* arguments, char* const* environment, int traced) {
  /* vfork(): with fork(), the copies of pages that a child makes before its exec would count as its
   * faults, and their number depends on the addresses of this process. */
  const pid_t child = traced ? fork() : vfork();
  if (child < 0) die("fork");
  if (child != 0) return child;
  if (traced && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
  execve("/proc/self/exe", arguments, environment);
  _exit(2);
}

static void check(int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) exit(77);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  fprintf(stderr, "counts: the started program failed (status %#x)\n", (unsigned)status);
  exit(2);
}

static double mean_faults(char* const* arguments, char* const* environment) {
  long sum = 0;
  for (int i = 0; i < kRuns; ++i) {
    int status;
    struct rusage usage;
    if (wait4(start(arguments, environment, 0), &status, 0, &usage) < 0) die("wait4");
    check(status);
    sum += usage.ru_minflt;
  }
  return (double)sum / kRuns;
}

static long calls(char* const* arguments, char* const* environment) {
  const pid_t child = start(arguments, environment, 1);
  long stops = 0;
  int status;
  if (waitpid(child, &status, 0) != child) die("waitpid");
  if (!WIFSTOPPED(status)) check(status); /* 77, before the exec */
  for (;;) {
    if (ptrace(PTRACE_SYSCALL, child, NULL, NULL) != 0) die("ptrace");
    if (waitpid(child, &status, 0) != child) die("waitpid");
    if (!WIFSTOPPED(status)) break;
    ++stops;
  }
  check(status);
  return (stops + 1) / 2; /* one stop before each call and one after it; none after the last */
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "=nothing") == 0) return 0;
  if (argc == 2 && strcmp(argv[1], "=malloc") == 0) {
    void* volatile block = malloc(100);
    free(block);
    return block == NULL;
  }
  if (argc < 2) {
    fprintf(stderr, "usage: counts nothing|malloc [PRELOAD]\n");
    return 2;
  }
  char mode[32], preload[4096];
  snprintf(mode, sizeof mode, "=%s", argv[1]);
  snprintf(preload, sizeof preload, "LD_PRELOAD=%s", argc > 2 ? argv[2] : "");
  char* const arguments[] = {argv[0], mode, NULL};
  char* const environment[] = {argc > 2 ? preload : NULL, NULL};
  const double faults = mean_faults(arguments, environment);
  printf("faults %.1f calls %ld\n", faults, calls(arguments, environment));
  return 0;
}
