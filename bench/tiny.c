/* The smallest dynamically linked program that uses malloc. Its start-up shows what a heap adds to
 * every process; /bin/true may never allocate. */
#include <stdlib.h>

int main(void) {
  void* volatile block = malloc(100);
  free(block);
  return block == 0;
}
