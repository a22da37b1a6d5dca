// A plug-in that has the heap inside.
#include <stdlib.h>

void* plugin_malloc(size_t bytes);
void plugin_free(void* block);
void* plugin_malloc(size_t bytes) { return malloc(bytes); }
void plugin_free(void* block) { free(block); }
