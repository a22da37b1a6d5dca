/* main for the C library's allocation tests.  The runner has the time limits, so a test may use
   SIGALRM and be a single process. */

#include "glibc_support.h"

int main(void) {
  support_initialize();
  setvbuf(stdout, NULL, _IOLBF, 0);
#ifdef TEST_FUNCTION
  int result = TEST_FUNCTION;
#else
  int result = do_test();
#endif
  int failures = __atomic_load_n(support_failures, __ATOMIC_RELAXED);
  if (failures > 0) printf("%d verification(s) failed\n", failures);
  return result == 0 && failures > 0 ? 1 : result;
}
