/* The public header compiles as plain C11, and a C program links without a C++ library. */
#if defined(__has_include)
#if __has_include(<loam/loam.h>)
#include <loam/loam.h>
#endif
#endif
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  void* const block = malloc(100);
  if (block == NULL) return 1;
  free(block);
  puts("served by loam");
  return 0;
}
