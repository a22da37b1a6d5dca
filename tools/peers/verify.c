/* Probe for a preloaded allocator: `verify OBJECT` under LD_PRELOAD=OBJECT.
 * Checks that OBJECT is mapped, that every entry point of the family resolves into it, and that
 * blocks of many sizes keep their content when two threads allocate them and free each other's.
 * Exit 0, or 1 with one line on stderr. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlocks = 20000 };

static unsigned char* blocks[2][kBlocks];
static pthread_barrier_t barrier;

static size_t size_of(int i) {
  if (i % 1000 == 0) return 3u << 20;
  if (i % 50 == 0) return 70000 + (size_t)i;
  return 1 + (size_t)(i * 7919) % 2000;
}

static void fail(const char* what, const char* detail) {
  fprintf(stderr, "%s: %s\n", what, detail);
  exit(1);
}

static void* work(void* argument) {
  int me = (int)(size_t)argument;
  for (int i = 0; i < kBlocks; ++i) {
    size_t size = size_of(i);
    unsigned char* block = i % 3 ? malloc(size) : calloc(1, size);
    if (!block) fail("allocation failed", "null");
    if (((size_t)block & 15) && size >= 16) fail("alignment", "a block is not 16-byte aligned");
    memset(block, i & 255, size < 4096 ? size : 4096);
    blocks[me][i] = block;
  }
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < kBlocks; ++i) {
    unsigned char* block = blocks[1 - me][i];
    if (block[0] != (i & 255)) fail("content", "a block was overwritten");
    if (i % 5 == 0) block = realloc(block, size_of(i) * 2);
    if (block[0] != (i & 255)) fail("content", "realloc lost a block's content");
    free(block);
  }
  return NULL;
}

static void check_owner(const char* object, const char* symbol) {
  Dl_info info;
  void* address = dlsym(RTLD_DEFAULT, symbol);
  if (!address || !dladdr(address, &info)) fail("symbol not found", symbol);
  if (strcmp(info.dli_fname, object) != 0) {
    fprintf(stderr, "%s comes from %s, not from the preloaded object\n", symbol, info.dli_fname);
    exit(1);
  }
}

static void check_mapped(const char* object) {
  char line[4096];
  FILE* maps = fopen("/proc/self/maps", "r");
  int found = 0;
  while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, object) != NULL;
  if (!found) fail("not mapped", object);
  fclose(maps);
}

int main(int count, char** arguments) {
  static const char* const kFamily[] = {"malloc",  "free",           "calloc",
                                        "realloc", "posix_memalign", "aligned_alloc"};
  if (count != 2) fail("usage", "verify OBJECT");
  check_mapped(arguments[1]);
  for (size_t i = 0; i < sizeof kFamily / sizeof *kFamily; ++i)
    check_owner(arguments[1], kFamily[i]);
  void* aligned = NULL;
  if (posix_memalign(&aligned, 4096, 5000) || ((size_t)aligned & 4095))
    fail("posix_memalign", "refused or misaligned");
  free(aligned);
  pthread_barrier_init(&barrier, NULL, 2);
  pthread_t other;
  pthread_create(&other, NULL, work, (void*)1);
  work((void*)0);
  pthread_join(other, NULL);
  return 0;
}
