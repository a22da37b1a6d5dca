/* Loads a plugin that was linked without Loam. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  /* Linkers that keep only called libraries would otherwise drop the library. */
  void* const block = malloc(100);
  if (block == NULL || argc != 2) return 2;
  free(block);
  void* const plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  int (*use_heap)(void);
  *(void**)&use_heap = dlsym(plugin, "use_heap");
  if (use_heap == NULL || !use_heap()) return 1;
  puts("served by loam");
  return 0;
}
