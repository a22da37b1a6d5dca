/* The smallest dynamically linked program that uses malloc: start-up with this is what a heap adds
 * to every process, since /bin/true may never allocate. */
#include <stdlib.h>

int main(void) {
  void* volatile block = malloc(100);
  free(block);
  return block == 0;
}
