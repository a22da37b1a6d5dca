// fork() in a program whose threads allocate. A library's fork handlers allocate before and after
// the fork, and start and join threads that allocate. Nothing hangs, and the child continues. The
// library is linked, or opened:
//
//   fork_handlers                      the library is linked
//   fork_handlers open LIBRARY         it is opened
//   fork_handlers late LIBRARY HEAP    the heap is opened, then the library, whose handlers use
//                                      that heap
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "../preload/check.h"
#include "fork_handlers_library.h"

enum { kThreads = 3, kForks = 15 };

static atomic_bool stop;
static void* (*take)(size_t) = &malloc;
static void (*give)(void*) = &free;

static void* churn(void* argument) {
  uint64_t seed = (uint64_t)(uintptr_t)argument + 1;
  void* own[64] = {0};
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    const size_t slot = next_random(&seed) % 64;
    give(own[slot]);
    const uint64_t random = next_random(&seed);
    own[slot] = take(1 + (random >> 8) % (random % 100 == 0 ? 2000000 : 3000));
    CHECK(own[slot] != NULL);
  }
  for (int i = 0; i < 64; ++i) give(own[i]);
  return NULL;
}

#if defined(LINKED)
static struct counts* const calls = &fork_handler_calls;
static void (*const allocate)(void) = &fork_handlers_allocate;
#else
static void* must_find(void* library, const char* name) {
  void* const found = library == NULL ? NULL : dlsym(library, name);
  if (found == NULL) dprintf(2, "%s: %s\n", name, dlerror());
  CHECK(found != NULL);
  return found;
}

static struct counts* calls;
static void (*allocate)(void);
#endif

int main(int argc, char** argv) {
  alarm(200);  // a hang must fail soon
#if defined(LINKED)
  (void)argv;
  CHECK_EQUAL(argc, 1);
#else
  CHECK(argc >= 3);
  if (argc == 4) {
    void* const heap = dlopen(argv[3], RTLD_NOW | RTLD_LOCAL);
    *(void**)&take = must_find(heap, "malloc");
    *(void**)&give = must_find(heap, "free");
  }
  void* const library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  calls = must_find(library, "fork_handler_calls");
  *(void**)&allocate = must_find(library, "fork_handlers_allocate");
  void (*use)(void* (*)(size_t), void (*)(void*));
  *(void**)&use = must_find(library, "fork_handlers_use");
  use(take, give);
#endif
  pthread_t threads[kThreads];
  for (uintptr_t i = 0; i < kThreads; ++i)
    CHECK_EQUAL(pthread_create(&threads[i], NULL, churn, (void*)i), 0);
  const int before = calls->parent;
  for (int i = 0; i < kForks; ++i) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      alarm(100);
      CHECK_EQUAL(calls->child, 1);
      allocate();
      _exit(0);
    }
    int status = 1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQUAL(status, 0);
  }
  CHECK_EQUAL(calls->prepare - before, kForks);
  CHECK_EQUAL(calls->parent - before, kForks);
  atomic_store(&stop, true);
  for (int i = 0; i < kThreads; ++i) CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
  return 0;
}
