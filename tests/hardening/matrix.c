// One mistake each, by name and size, for the table in docs/hardening.md. table.py reads the
// promises there and runs this.
//
//   matrix list               every mistake: its name, S (blocks of spans), L (larger ones) or -
//                             (no block), a tab between
//   matrix NAME SIZE [TIMES]  makes it, so often (once)
//
// Exit status 0: the mistake was not found.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "../preload/check.h"

// Stores and loads that are opaque to compilers. The stored value is even, because no byte of a
// canary or of poison is.
static void poke(void* block, ptrdiff_t offset) {
  *((volatile unsigned char*)opaque(block) + offset) = 2;
}
static void peek(void* block, ptrdiff_t offset) {
  (void)*((volatile unsigned char*)opaque(block) + offset);
}

static void* get(size_t size) {
  void* block = opaque(malloc(size));
  CHECK(block != NULL);
  memset(block, 'x', size);
  return block;
}

// Other frees, of blocks of many sizes. None of these sizes is used by a mistake here.
static void others(int count) {
  static const size_t kSizes[] = {40, 72, 200, 400, 2000, 12000};
  for (int i = 0; i < count; ++i) free(get(kSizes[i % 6]));
}

// ---- overflow and underflow --------------------------------------------------------------------

static void overflow_by(size_t size, size_t by) {
  unsigned char* block = get(size);
  for (size_t i = 0; i < by; ++i) poke(block, (ptrdiff_t)(size + i));
  free(block);
}
static void overflow_1(size_t size) { overflow_by(size, 1); }
static void overflow_8(size_t size) { overflow_by(size, 8); }
static void overflow_64(size_t size) { overflow_by(size, 64); }
static void overflow_page(size_t size) { overflow_by(size, 4096); }
static void overflow_kept(size_t size) { poke(get(size), (ptrdiff_t)size); }
static void overflow_far(size_t size) {
  void* block = get(size);
  poke(block, (ptrdiff_t)size + 40000);
  free(block);
}
static void overread_page(size_t size) {
  void* block = get(size);
  peek(block, (ptrdiff_t)size + 4096);
  free(block);
}
static void overread_16(size_t size) {
  void* block = get(size);
  peek(block, (ptrdiff_t)size + 16);
  free(block);
}
static void underflow_1(size_t size) {
  void* first = get(size);
  void* block = get(size);
  poke(block, -1);
  free(first);
  free(block);
}
// An underflow of a block that has a live block in front of it.
static void underflow_beside(size_t size) {
  enum { kBlocks = 200 };
  char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) blocks[i] = get(size);
  int best = -1;
  ptrdiff_t least = PTRDIFF_MAX;
  for (int i = 0; i < kBlocks; ++i) {
    for (int j = 0; j < kBlocks; ++j) {
      if (blocks[i] > blocks[j] && blocks[i] - blocks[j] < least) {
        least = blocks[i] - blocks[j];
        best = i;
      }
    }
  }
  poke(blocks[best], -1);
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
}
static void write_nothing(size_t size) {
  (void)size;
  void* block = opaque(malloc(0));
  poke(block, 0);
  free(block);
}
static void read_nothing(size_t size) {
  (void)size;
  void* block = opaque(malloc(0));
  peek(block, 0);
  free(block);
}

// ---- use after free ----------------------------------------------------------------------------

static void* freed(size_t size) {
  void* block = get(size);
  free(block);
  return opaque(block);
}
static void write_freed(size_t size) { poke(freed(size), (ptrdiff_t)size / 2); }
static void write_freed_later(size_t size) {
  void* block = freed(size);
  others(100);
  poke(block, (ptrdiff_t)size - 1);
}
static void write_freed_for_long(size_t size) {
  void* block = freed(size);
  others(2000);
  poke(block, (ptrdiff_t)size - 1);
}
static void read_freed(size_t size) { peek(freed(size), (ptrdiff_t)size / 2); }
static void read_freed_later(size_t size) {
  void* block = freed(size);
  others(100);
  peek(block, 0);
}
static void follow_freed(size_t size) {
  static char target[64];
  void** block = get(size < sizeof *block ? sizeof *block : size);
  block[0] = target;
  free(block);
  void** read = *(void** volatile*)opaque(block);
  *(void* volatile*)read = NULL;
}
// A valid block of this size would keep its address.
static void realloc_inside(size_t size) {
  (void)opaque(realloc(opaque((char*)get(size < 32 ? 32 : size) + 16), size));
}
static void realloc_freed(size_t size) { free(opaque(realloc(freed(size), size + 100))); }
static void usable_freed(size_t size) { (void)opaque((void*)malloc_usable_size(freed(size))); }

// ---- wrong frees -------------------------------------------------------------------------------

static void free_twice(size_t size) { free(freed(size)); }
static void free_twice_later(size_t size) {
  void* block = freed(size);
  others(20000);
  free(block);
}
static void* free_it(void* block) {
  free(block);
  return NULL;
}
static void free_twice_elsewhere(size_t size) {
  void* block = get(size);
  pthread_t thread;
  CHECK_EQUAL(pthread_create(&thread, NULL, free_it, block), 0);
  pthread_join(thread, NULL);
  free(opaque(block));
}
// If the heap passes pages on, the block's pages have become those of small blocks.
static void free_twice_reused(size_t size) {
  void* block = freed(size);
  for (int i = 0; i < 4000; ++i) (void)get(1000);
  free(block);
}
static void free_inside(size_t size) { free((char*)get(size) + 16); }
static void free_inside_odd(size_t size) { free((char*)get(size) + 3); }
static void usable_inside(size_t size) {
  (void)opaque((void*)malloc_usable_size((char*)get(size) + 16));
}
static void free_stack(size_t size) {
  _Alignas(16) char place[64];
  (void)size;
  free(opaque(place));
}
static void free_global(size_t size) {
  static _Alignas(16) char place[64];
  (void)size;
  free(opaque(place));
}
static void free_wild(size_t size) {
  (void)size;
  free(opaque((void*)(uintptr_t)0x123456789abcd0));
}
static void usable_wild(size_t size) {
  (void)size;
  (void)opaque((void*)malloc_usable_size(opaque((void*)(uintptr_t)0x123456789abcd0)));
}
static void usable_stack(size_t size) {
  _Alignas(16) char place[64];
  (void)size;
  (void)opaque((void*)malloc_usable_size(opaque(place)));
}
static void realloc_stack(size_t size) {
  _Alignas(16) char place[64];
  (void)size;
  (void)opaque(realloc(opaque(place), 100));
}
static void wrong_size(size_t size) {
  void (*sized)(void*, size_t) = (void (*)(void*, size_t))dlsym(RTLD_DEFAULT, "free_sized");
  CHECK(sized != NULL);
  sized(get(size), size + 1);
}
static void wrong_delete(size_t size) {
  void (*sized)(void*, size_t) = (void (*)(void*, size_t))dlsym(RTLD_DEFAULT, "_ZdlPvm");
  CHECK(sized != NULL);
  sized(get(size), size + 8);
}
static void malloc_deleted(size_t size) {
  void (*plain)(void*) = (void (*)(void*))dlsym(RTLD_DEFAULT, "_ZdlPv");
  CHECK(plain != NULL);
  plain(get(size));
}

static const struct {
  const char* name;
  const char* sizes;
  void (*make)(size_t size);
} kMistakes[] = {
    {"write 1 byte behind the end", "SL", overflow_1},
    {"write 8 bytes behind the end", "SL", overflow_8},
    {"write 64 bytes behind the end", "SL", overflow_64},
    {"write 4096 bytes behind the end", "SL", overflow_page},
    {"write behind the end of a block that is never freed", "SL", overflow_kept},
    {"write one byte, 40,000 behind the end", "L", overflow_far},
    {"read 16 bytes behind the end", "S", overread_16},
    {"read a page behind the end", "L", overread_page},
    {"write 1 byte before the begin", "L", underflow_1},
    {"write 1 byte before the begin, a live block there", "S", underflow_beside},
    {"write to a block of 0 bytes", "-", write_nothing},
    {"read of a block of 0 bytes", "-", read_nothing},
    {"write to a freed block", "SL", write_freed},
    {"write to a freed block, 100 frees later", "SL", write_freed_later},
    {"write to a freed block that has left the quarantine", "SL", write_freed_for_long},
    {"read of a freed block", "SL", read_freed},
    {"read of a freed block, 100 frees later", "SL", read_freed_later},
    {"follow a pointer read out of a freed block", "S", follow_freed},
    {"free twice", "SL", free_twice},
    {"free twice, 20,000 frees later", "SL", free_twice_later},
    {"free twice, first in another thread", "SL", free_twice_elsewhere},
    {"free twice, 4,000 small blocks made meanwhile", "L", free_twice_reused},
    {"free 16 bytes into a block", "SL", free_inside},
    {"free 3 bytes into a block", "SL", free_inside_odd},
    {"free of a place on the stack", "-", free_stack},
    {"free of a global variable", "-", free_global},
    {"free of a wild pointer", "-", free_wild},
    {"realloc of a freed block", "SL", realloc_freed},
    {"realloc 16 bytes into a block", "SL", realloc_inside},
    {"realloc of a place on the stack", "-", realloc_stack},
    {"malloc_usable_size of a freed block", "SL", usable_freed},
    {"malloc_usable_size 16 bytes into a block", "SL", usable_inside},
    {"malloc_usable_size of a place on the stack", "-", usable_stack},
    {"malloc_usable_size of a wild pointer", "-", usable_wild},
    {"free_sized with a size that is 1 too large", "SL", wrong_size},
    {"operator delete with a size that is 8 too large", "SL", wrong_delete},
    {"operator delete of what malloc made", "SL", malloc_deleted},
};
enum { kCount = sizeof kMistakes / sizeof kMistakes[0] };

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "list") == 0) {
    for (int i = 0; i < kCount; ++i) printf("%s\t%s\n", kMistakes[i].name, kMistakes[i].sizes);
    return 0;
  }
  CHECK(argc == 3 || argc == 4);
  const struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  alarm(300);  // only ends a program that hangs
  const size_t size = strtoul(argv[2], NULL, 10);
  const long times = argc == 4 ? atol(argv[3]) : 1;
  for (int i = 0; i < kCount; ++i) {
    if (strcmp(kMistakes[i].name, argv[1]) != 0) continue;
    for (long n = 0; n < times; ++n) kMistakes[i].make(size);
    return 0;
  }
  CHECK(!"no such mistake");
}
