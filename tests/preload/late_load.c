// dlopen can load libloam late, into a program that runs on another malloc. The eight bytes of
// static TLS that it needs are available, and blocks of the two heaps do not mix.
#include <dlfcn.h>
#include <pthread.h>

#include "check.h"

static void* (*late_malloc)(size_t);
static void (*late_free)(void*);

static void* use_late_heap(void* argument) {
  (void)argument;
  for (size_t i = 0; i < 20000; ++i) {
    char* const theirs = late_malloc(i % 5000 + 1);
    char* const ours = opaque(malloc(i % 5000 + 1));
    CHECK(theirs != NULL && ours != NULL && theirs != ours);
    theirs[i % 5000] = 1;
    ours[i % 5000] = 2;
    CHECK(theirs[i % 5000] == 1);
    late_free(theirs);
    if (i % 16 != 0) free(ours);
    if (i % 16 == 0) late_free(ours);  // back to the other malloc
  }
  return NULL;
}

int main(int argc, char** argv) {
  CHECK_EQUAL(argc, 2);
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) dprintf(2, "%s\n", dlerror());
  CHECK(library != NULL);
  late_malloc = (void* (*)(size_t))(uintptr_t)dlsym(library, "malloc");
  late_free = (void (*)(void*))(uintptr_t)dlsym(library, "free");
  CHECK(late_malloc != NULL && late_free != NULL);
  CHECK((uintptr_t)late_malloc != (uintptr_t)&malloc);
  use_late_heap(NULL);
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) {
    CHECK_EQUAL(pthread_create(&threads[i], NULL, use_late_heap, NULL), 0);
  }
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  dlclose(library);
  return 0;
}
