/* Compiled with the headers alone. Its calls are resolved in the host program's library. */
#include <loam/win32.h>

int use_heap(void);

int use_heap(void) {
  const HANDLE heap = HeapCreate(0, 0, 0);
  if (heap == NULL) return 0;
  const LPVOID block = HeapAlloc(heap, HEAP_ZERO_MEMORY, 100);
  const int good = block != NULL && HeapSize(heap, 0, block) == 100;
  return HeapDestroy(heap) && good;
}
