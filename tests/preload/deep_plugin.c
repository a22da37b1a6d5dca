// deep_binding loads this with RTLD_DEEPBIND. It is linked with the C library, like every library.
// So with deep binding that library's malloc() comes before the process's own.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

char* deep_copy(const char* text) { return strdup(text); }
void* deep_make(size_t bytes) { return malloc(bytes); }
void deep_take(void* block) { free(block); }
void* deep_malloc(void) { return (void*)(size_t)&malloc; }
// Loads a name that only this library's RUNPATH finds. The call is no jump, because the caller
// would then be this function's caller.
void* deep_open(void) {
  void* volatile opened = dlopen("libdeep_leaf.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  return opened;
}
