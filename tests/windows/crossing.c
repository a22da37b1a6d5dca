// A program and a plugin, each linked with libloam.a. Blocks pass from one to the other, both ways,
// and each call works on them there. Blocks of the C run-time's DLL are as good.
#include <errno.h>
#include <loam/loam.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#include "check.h"

// mingw-w64 does not declare it.
__declspec(dllimport) size_t _aligned_msize(void*, size_t, size_t);

#define FUNCTION(type, module, name) ((type)(void*)GetProcAddress(module, name))

typedef void* (*Make)(size_t);
typedef void* (*MakeAligned)(size_t, size_t);
typedef void (*Take)(void*);
typedef void* (*Grow)(void*, size_t);
typedef size_t (*Size)(void*);

static void cross(HMODULE plugin) {
  const Make make = FUNCTION(Make, plugin, "plugin_make");
  const MakeAligned make_aligned = FUNCTION(MakeAligned, plugin, "plugin_make_aligned");
  const Take take = FUNCTION(Take, plugin, "plugin_take");
  const Grow grow = FUNCTION(Grow, plugin, "plugin_grow");
  const Size size = FUNCTION(Size, plugin, "plugin_size");
  static const size_t kSizes[] = {1, 100, 3000, 40000, 3 << 20, 64 << 20};
  for (size_t i = 0; i < sizeof kSizes / sizeof *kSizes; ++i) {
    const size_t bytes = kSizes[i];
    char* block = make(bytes);
    CHECK(block != NULL && loam_heap_of(block) == NULL);
    CHECK(_msize(block) >= bytes);
    CHECK(_expand(block, bytes) == block && _expand(block, SIZE_MAX / 4) == NULL);
    block[bytes - 1] = 'x';
    block = realloc(block, 2 * bytes);
    CHECK(block != NULL && block[bytes - 1] == 'x');
    CHECK(loam_heap_of(block) != NULL);
    free(block);
    free(make(bytes));
    block = make(bytes);
    memset(block, 'y', bytes);
    const size_t known = _msize(block);
    block = _recalloc(block, 3, bytes);
    CHECK(block != NULL && block[bytes - 1] == 'y');
    if (known < 3 * bytes) CHECK(block[3 * bytes - 1] == 0);
    CHECK(size(block) >= 3 * bytes);
    block = grow(block, 4 * bytes);
    CHECK(block != NULL && block[bytes - 1] == 'y');
    take(block);
    take(malloc(bytes));
    block = make_aligned(bytes, 256);
    CHECK((uintptr_t)block % 256 == 0 && _aligned_msize(block, 256, 0) >= bytes);
    block[0] = 'z';
    block = _aligned_realloc(block, 2 * bytes, 256);
    CHECK(block != NULL && block[0] == 'z');
    _aligned_free(block);
    _aligned_free(make_aligned(bytes, 16));
  }
}

static void use_blocks_of_the_run_time(HMODULE others) {
  const Make make = FUNCTION(Make, others, "others_make");
  const MakeAligned make_aligned = FUNCTION(MakeAligned, others, "others_make_aligned");
  char* block = make(1000);
  CHECK(_msize(block) == 1000);
  CHECK(_expand(block, 10) == block && _expand(block, 100000) == NULL);
  memset(block, 'y', 1000);
  block = _recalloc(block, 1, 4000);
  CHECK(block != NULL && block[999] == 'y' && block[1000] == 0 && block[3999] == 0);
  free(block);
  block = make(0);
  CHECK(_msize(block) == 0);
  CHECK(_recalloc(block, 0, 8) == NULL);
  for (size_t alignment = 16; alignment <= 4096; alignment *= 4) {
    block = make_aligned(500, alignment);
    CHECK((uintptr_t)block % alignment == 0);
    memset(block, 'a', 500);
    block = _aligned_realloc(block, 9000, alignment);
    CHECK(block != NULL && block[499] == 'a' && (uintptr_t)block % alignment == 0);
    _aligned_free(block);
    _aligned_free(make_aligned(500, alignment));
  }
  errno = 0;
  CHECK(_msize((char*)malloc(100) + 16) == SIZE_MAX && errno == EINVAL);
}

int main(int count, char** arguments) {
  CHECK(count == 3);
  use_blocks_of_the_run_time(LoadLibraryA(arguments[2]));
  const HMODULE plugin = LoadLibraryA(arguments[1]);
  CHECK(plugin != NULL);
  cross(plugin);
  // The plugin is gone, and its heap is not asked any more.
  void* const block = FUNCTION(Make, plugin, "plugin_make")(100);
  CHECK(_msize(block) >= 100);
  CHECK(FreeLibrary(plugin));
  if (GetModuleHandleA(arguments[1]) == NULL) CHECK(_msize(block) == SIZE_MAX);
  const HMODULE again = LoadLibraryA(arguments[1]);
  CHECK(again != NULL);
  cross(again);
  return 0;
}
