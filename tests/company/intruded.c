// A program whose C library's calls allocate before they do their work (intruder.c). It has first
// one thread and then several, with small, large and huge blocks, growth, trim, fork, and threads
// that end. Nothing hangs, and the heap never re-enters itself.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "../preload/check.h"
#include "intruder.h"

enum { kThreads = 4, kBlocks = 256 };

static void use_sizes(uint64_t seed, int rounds) {
  void* blocks[kBlocks] = {0};
  for (int i = 0; i < rounds; ++i) {
    const uint64_t random = next_random(&seed);
    const size_t place = random % kBlocks;
    const size_t size = 1 + (random >> 8) % (random % 500 == 0  ? (size_t)50 << 20
                                             : random % 20 == 0 ? 900000
                                                                : 5000);
    switch (random >> 60) {
      case 0:
        free(blocks[place]);
        blocks[place] = calloc(1, size);
        break;
      case 1:
        free(blocks[place]);
        blocks[place] = aligned_alloc(4096, size / 4096 * 4096 + 4096);
        break;
      case 2:
      case 3:
        blocks[place] = realloc(blocks[place], size);
        break;
      default:
        free(blocks[place]);
        blocks[place] = malloc(size);
    }
    if (blocks[place] != NULL) *(volatile char*)blocks[place] = 1;
    if (i % 1024 == 0) malloc_trim(0);
  }
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
}

static void grow(void) {
  char* block = NULL;
  for (size_t size = 1; size < (size_t)200 << 20; size = size * 5 / 4 + 1) {
    block = realloc(block, size);
    CHECK(block != NULL);
    block[size - 1] = 1;
  }
  free(block);
}

// Heaps of the program's own have locks of their own. The system's malloc has no such heaps.
static void use_private_heap(void) {
  void* (*create)(const void*);
  int (*destroy)(void*);
  void* (*allocate)(void*, size_t);
  void* (*resize)(void*, void*, size_t);
  *(void**)&create = dlsym(RTLD_DEFAULT, "loam_heap_create");
  *(void**)&destroy = dlsym(RTLD_DEFAULT, "loam_heap_destroy");
  *(void**)&allocate = dlsym(RTLD_DEFAULT, "loam_alloc");
  *(void**)&resize = dlsym(RTLD_DEFAULT, "loam_realloc");
  if (create == NULL || destroy == NULL || allocate == NULL || resize == NULL) return;
  void* const heap = create(NULL);
  CHECK(heap != NULL);
  for (size_t size = 1; size < (size_t)9 << 20; size = size * 2 + 1) {
    char* block = NULL;
    for (int i = 0; i < 4; ++i) {
      const size_t wanted = size * (size_t)(i % 2 + 1);
      block = i < 2 ? allocate(heap, wanted) : resize(heap, block, wanted);
      CHECK(block != NULL);
      block[size - 1] = 1;
    }
  }
  CHECK_EQUAL(destroy(heap), 0);
}

static void* run(void* argument) {
  use_sizes((uint64_t)(uintptr_t)argument + 7, 3000);
  use_private_heap();
  return NULL;
}

static void run_threads(void) {
  for (int round = 0; round < 3; ++round) {
    pthread_t threads[kThreads];
    for (uintptr_t i = 0; i < kThreads; ++i)
      CHECK_EQUAL(pthread_create(&threads[i], NULL, run, (void*)i), 0);
    for (int i = 0; i < kThreads; ++i) CHECK_EQUAL(pthread_join(threads[i], NULL), 0);
  }
}

static void fork_all(int count) {
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      alarm(100);
      use_sizes(3, 1000);
      _exit(0);
    }
    int status = 1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_EQUAL(status, 0);
  }
}

static void* fork_beside(void* argument) {
  fork_all(5);
  return argument;
}

int main(void) {
  alarm(250);  // a hang must fail soon
  use_sizes(1, 5000);
  grow();
  use_private_heap();
  fork_all(2);
  run_threads();
  pthread_t forks;
  CHECK_EQUAL(pthread_create(&forks, NULL, fork_beside, NULL), 0);
  run_threads();
  CHECK_EQUAL(pthread_join(forks, NULL), 0);
  grow();
  // At least the program's own calls allocated.
  munmap(mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
  CHECK(intruder_calls >= 2);
  return 0;
}
