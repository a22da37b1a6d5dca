/* The public headers compile as plain C11, and a C program links without a C++ library. */
#include <loam/loam.h>
#include <loam/win32.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  void* const block = malloc(100);
  if (block == NULL) return 1;
  free(block);
  const HANDLE heap = HeapCreate(0, 0, 0);
  char* const text = (char*)HeapAlloc(heap, HEAP_ZERO_MEMORY, 100);
  if (text == NULL || HeapSize(heap, 0, text) != 100 || strlen(text) != 0) return 1;
  if (!HeapDestroy(heap)) return 1;
  puts("served by loam");
  return 0;
}
