// The heap does not need a constant environment: programs set, unset and clear it, and replace
// environ. It also opens no file that the program could see or lose.
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
  // The lowest free number must be 3. A descriptor that the heap keeps open would have that number.
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

  // Daemons close all descriptors, so none may be the heap's.
  for (int i = 0; i < 256; ++i) close(i);
  exercise();
  malloc_trim(0);
  return 0;
}
