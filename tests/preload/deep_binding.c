// A library that is loaded with RTLD_DEEPBIND shares the process's heap: blocks go both ways. Its
// own loads use its own RUNPATH, as if no library came before the system's dlopen(). With "keep" it
// has a heap of its own.
#include <dlfcn.h>

#include "check.h"

static void* symbol(void* handle, const char* name) {
  void* found = dlsym(handle, name);
  if (found == NULL) dprintf(2, "%s\n", dlerror());
  CHECK(found != NULL);
  return found;
}

int main(int argc, char** argv) {
  CHECK(argc >= 2);
  const int keep = argc == 3 && strcmp(argv[2], "keep") == 0;
  void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (plugin == NULL) dprintf(2, "%s\n", dlerror());
  CHECK(plugin != NULL);
  void* (*make)(size_t);
  void (*take)(void*);
  char* (*copy)(const char*);
  void* (*its_malloc)(void);
  void* (*open)(void);
  *(void**)(&make) = symbol(plugin, "deep_make");
  *(void**)(&take) = symbol(plugin, "deep_take");
  *(void**)(&copy) = symbol(plugin, "deep_copy");
  *(void**)(&its_malloc) = symbol(plugin, "deep_malloc");
  *(void**)(&open) = symbol(plugin, "deep_open");

  CHECK((its_malloc() == (void*)(size_t)&malloc) != keep);
  for (size_t bytes = 1; bytes < 10000000 && !keep; bytes = bytes * 3 + 1) {
    void* theirs = make(bytes);
    void* ours = opaque(malloc(bytes));
    CHECK(theirs != NULL && ours != NULL);
    memset(theirs, 1, bytes);
    free(opaque(theirs));
    take(ours);
    char* text = copy("deep");
    CHECK(text != NULL && strcmp(text, "deep") == 0);
    free(text);
  }
  take(make(100));  // its own malloc, whichever heap that is
  for (size_t bytes = 1; bytes < 10000000; bytes = bytes * 3 + 1) {
    void* theirs = make(bytes);
    CHECK(theirs != NULL && malloc_usable_size(theirs) >= bytes);
    free(opaque(theirs));
    free(opaque(realloc(opaque(copy("deep")), 1000)));
  }

  void* leaf = open();
  if (leaf == NULL) dprintf(2, "%s\n", dlerror());
  CHECK(leaf != NULL);
  CHECK(dlopen("libdeep_leaf_that_is_not.so", RTLD_NOW | RTLD_DEEPBIND) == NULL &&
        dlerror() != NULL);
  CHECK(dlclose(leaf) == 0 && dlclose(plugin) == 0);
  return 0;
}
