/* A port with its own Windows types, beside a HeapAlloc that is no function of heaps. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef int BOOL;
typedef unsigned char BYTE;
typedef unsigned short WORD;
typedef unsigned int DWORD;
typedef unsigned int ULONG;
typedef size_t SIZE_T, *PSIZE_T;
typedef void *PVOID, *LPVOID, *HANDLE;
typedef HANDLE* PHANDLE;
typedef const void* LPCVOID;
#define HEAP_ZERO_MEMORY 8
#define LOAM_WIN32_NO_TYPES
#include <loam/win32.h>

/* The other file's function, by its symbol. From here on HeapAlloc means that of Windows. */
int other_heap_alloc(int answer) __asm__("HeapAlloc");

int main(void) {
  const HANDLE heap = HeapCreate(0, 0, 0);
  char* const block = (char*)HeapAlloc(heap, HEAP_ZERO_MEMORY, 100);
  if (block == NULL || HeapSize(heap, 0, block) != 100 || block[99] != 0) return 1;
  if (other_heap_alloc(41) != 42 || !HeapDestroy(heap)) return 1;
  puts("served by loam");
  return 0;
}
