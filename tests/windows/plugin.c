// A plugin that is linked with libloam.a (plugged.cpp, crossing.c).
#include <loam/loam.h>
#include <malloc.h>
#include <stdlib.h>

__declspec(dllexport) int plugin_works(void) {
  void* blocks[100];
  for (int i = 0; i < 100; ++i) blocks[i] = malloc((size_t)i * 300 + 1);
  int are_ours = 1;
  for (int i = 0; i < 100; ++i) {
    are_ours = are_ours && loam_heap_of(blocks[i]) != NULL;
    free(blocks[i]);
  }
  return are_ours;
}

// For crossing.c.
__declspec(dllexport) void* plugin_make(size_t bytes) { return malloc(bytes); }
__declspec(dllexport) void* plugin_make_aligned(size_t bytes, size_t alignment) {
  return _aligned_malloc(bytes, alignment);
}
__declspec(dllexport) void plugin_take(void* block) { free(block); }
__declspec(dllexport) void* plugin_grow(void* block, size_t bytes) { return realloc(block, bytes); }
__declspec(dllexport) size_t plugin_size(void* block) { return _msize(block); }
