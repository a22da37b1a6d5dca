/* A DLL without the heap: its malloc() is the C run-time's. */
#include <malloc.h>
#include <stdlib.h>
#include <windows.h>

static void* last;

__declspec(dllexport) void* others_make(size_t bytes) {
  last = malloc(bytes);
  if (last != NULL) *(char*)last = 'o';
  return last;
}

__declspec(dllexport) void* others_make_aligned(size_t bytes, size_t alignment) {
  return _aligned_malloc(bytes, alignment);
}

/* Whether the run-time's heap still has the last block. */
__declspec(dllexport) long others_block_is_live(void) {
  return HeapValidate((HANDLE)_get_heap_handle(), 0, last) != 0;
}
