/* counts MODE [PRELOAD]: the cost of a start of this program from exec to exit, in page faults and
 * system calls. counts =work: the KiB of malloc's code that are resident after ordinary work.
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

/* Blocks of many sizes are allocated, resized and freed in some order, some 5 MB at once. */
static int work(void) {
  enum { kBlocks = 4000 };
  static void* blocks[kBlocks];
  unsigned seed = 1;
  for (int i = 0; i < 20 * kBlocks; ++i) {
    seed = seed * 1103515245 + 12345;
    void** const block = &blocks[(seed >> 8) % kBlocks];
    const size_t bytes = (size_t)1 << (seed >> 24) % 14;
    if ((seed & 64) == 0) {
      *block = realloc(*block, bytes + seed % 512);
    } else {
      free(*block);
      *block = seed & 128 ? calloc(1, bytes) : malloc(bytes);
    }
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  free(malloc(300000));

  FILE* const maps = fopen("/proc/self/smaps", "re");
  if (maps == NULL) die("smaps");
  char line[512];
  unsigned long low, high, resident, code = (unsigned long)&malloc;
  for (int is_code = 0; fgets(line, sizeof line, maps) != NULL;) {
    if (sscanf(line, "%lx-%lx ", &low, &high) == 2) is_code = low <= code && code < high;
    if (!is_code || sscanf(line, "Rss: %lu kB", &resident) != 1) continue;
    printf("%lu\n", resident);
    return 0;
  }
  return 2;
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "=work") == 0) return work();
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
