// A resolver of an ifunc allocates. One in the program itself runs before the program's
// thread-local data is set up, and the heap's threads' caches are found by such data: with the
// heap, the program ends by SIGSEGV. This is a known limit (docs/portability.md); the test fails
// once it is gone, so that the page is changed.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int one(void) { return 1; }

static int (*pick(void))(void) {
  char* const block = malloc(100);
  memset(block, 1, 100);
  free(block);
  return one;
}

int answer(void) __attribute__((ifunc("pick")));

int main(int count, char** arguments) {
  if (count == 1) return answer() == 1 ? 0 : 2;
  // Start this program again as the test's environment says: with the heap.
  setenv("LD_PRELOAD", arguments[1], 1);
  const pid_t child = fork();
  if (child == 0) execl("/proc/self/exe", "allocating_resolver", NULL);
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child) return 2;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) return 0;
  fprintf(stderr, "an allocating resolver works now: say so in docs/portability.md\n");
  return 1;
}
