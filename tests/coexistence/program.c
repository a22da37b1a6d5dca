/* Blocks of malloc and of a private heap. With an argument, it also stores behind the end of a
 * block of malloc. It prints which malloc served it. run.py runs it under other tools' heaps. */
#include <loam/loam.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char** argv) {
  (void)argv;
  char* volatile a = malloc(100);
  loam_heap* heap = loam_heap_create(NULL);
  char* b = heap != NULL ? loam_alloc(heap, 100) : NULL;
  if (a == NULL || b == NULL) return 3;
  memset(a, 1, 100);
  memset(b, 2, 100);
  if (argc > 1) a[100] = 1; /* the error that the tools must find */
  printf("owner %s\n", loam_heap_of(a) == loam_default() ? "loam" : "another");
  free(a);
  return loam_heap_destroy(heap) == LOAM_OK ? 0 : 4;
}
