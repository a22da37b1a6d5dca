/* The heap in front of the other C run-time, ucrtbase.dll: the one that Windows 10 brought. A
   program in C, because gcc's C++ library here is built for msvcrt.dll.

     ucrt OTHERS.DLL       exit status: 0, or the line of what is not so */
#include <direct.h>
#include <loam/loam.h>
#include <malloc.h>
#include <stdlib.h>
#include <windows.h>

#define CHECK(what) \
  if (!(what)) return __LINE__

static int owns(const void* block) { return loam_heap_of(block) != NULL; }

int main(int count, char** arguments) {
  HMODULE others;
  void* (*make)(size_t);
  long (*is_live)(void);
  size_t bytes;
  char* block = malloc(100);
  CHECK(owns(block));
  free(block);
  block = _strdup("text");
  CHECK(owns(block));
  free(block);
  block = _aligned_malloc(100, 4096);
  CHECK(owns(block) && (uintptr_t)block % 4096 == 0);
  _aligned_free(block);

  /* Blocks that the run-time's DLL allocated go back to it. */
  CHECK(GetModuleHandleA("ucrtbase.dll") != NULL);
  block = _getcwd(NULL, 0);
  CHECK(block != NULL && !owns(block));
  free(block);
  others = LoadLibraryA(arguments[count - 1]);
  CHECK(others != NULL);
  make = (void* (*)(size_t))(void*)GetProcAddress(others, "others_make");
  is_live = (long (*)(void))(void*)GetProcAddress(others, "others_block_is_live");
  for (bytes = 1; bytes <= 1000000; bytes *= 1000) {
    block = make(bytes);
    CHECK(block != NULL && !owns(block) && is_live());
    block = realloc(block, bytes + 100);
    CHECK(owns(block) && block[0] == 'o' && !is_live());
    free(block);
    free(make(bytes));
    CHECK(!is_live());
  }
  return 0;
}
