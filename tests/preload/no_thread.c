// The heap starts no thread of its own, so a single-threaded program stays single-threaded. unshare
// and setns with user namespaces refuse a process that has a second thread.
#include <dirent.h>

#include "check.h"

int main(void) {
  for (size_t size = 1; size < (size_t)64 << 20; size = size * 2 + 1) free(opaque(malloc(size)));
  malloc_trim(0);
  CHECK_EQUAL(proc_number("/proc/self/status", "\nThreads:"), 1);
  return 0;
}
