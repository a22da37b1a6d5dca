// A C program opens a C++ plugin (operator_new_fails.cpp), so the heap was there before the C++
// runtime, and the runtime is where no other module's references look. The plugin's operators fail
// as the standard says: with the dynamic runtime, and with a static one of its own.
#include <dlfcn.h>

#include "check.h"

int main(int count, char** arguments) {
  CHECK(count == 2);
  void* const plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == NULL) dprintf(2, "%s\n", dlerror());
  CHECK(plugin != NULL);
  int (*run)(void);
  *(void**)(&run) = dlsym(plugin, "_Z11plugin_mainv");
  CHECK(run != NULL);
  return run();
}
