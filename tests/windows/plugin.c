// A plugin that is linked with libloam.a (plugged.cpp).
#include <loam/loam.h>
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
