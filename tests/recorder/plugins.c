// A C program that loads a C++ plugin again and again. The dynamic linker shows the plugin's
// library to no other object.
#include <dlfcn.h>

#include "program.h"

int main(int count, char** arguments) {
  CHECK(count > 1);
  for (int i = 0; i < 20; ++i) {
    void* plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) fprintf(stderr, "%s\n", dlerror());
    CHECK(plugin != NULL);
    void (*work)(void);
    *(void**)&work = dlsym(plugin, "work");
    CHECK(work != NULL);
    work();
    CHECK(dlclose(plugin) == 0);
    CHECK(dlerror() == NULL);
  }
  expect_size(801, 20, 20);
  printf("expect family new[] allocated 20\n");
  return 0;
}
