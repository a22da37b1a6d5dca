// The heap does not depend on the environment staying as it was: programs set, unset and clear it,
// and replace environ outright; and it opens no file that the program could see or lose.
#include <dirent.h>
#include <fcntl.h>

#include "check.h"

extern char** environ;

static void exercise(void) {
  for (size_t size = 1; size < (size_t)4 << 20; size = size * 2 + 1) {
    void* const block = opaque(calloc(1, size));
    CHECK(block != NULL);
    free(block);
  }
}

int main(void) {
  // The lowest free number must be 3: a descriptor kept open by the heap would have taken it.
  const int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
  CHECK(lowest >= 0);
  exercise();
  close(lowest);
  const int again = open("/dev/null", O_RDONLY | O_CLOEXEC);
  CHECK_EQUAL(again, lowest);
  close(again);

  char name[32];
  for (int i = 0; i < 3000; ++i) {
    snprintf(name, sizeof name, "LOAM_TEST_%d", i);
    CHECK_EQUAL(setenv(name, "a value that is long enough to be allocated", 1), 0);
  }
  exercise();
  CHECK_EQUAL(clearenv(), 0);
  exercise();
  char* empty[] = {NULL};
  environ = empty;
  exercise();

  // Daemons close everything: nothing of the heap's may be among it.
  for (int i = 0; i < 256; ++i) close(i);
  exercise();
  malloc_trim(0);
  return 0;
}
