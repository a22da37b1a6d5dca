#define _GNU_SOURCE
#include "real.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "operators.h"
#include "touched.h"

// A block that is freed before the functions are known: no hook handed it out.
static void free_first(void* block) {
  if (real_is_ready()) real.free(block);
}

Real real = {.free = free_first};

enum { kEarlyHeader = 16 };

_Alignas(64) char early[kEarlyBytes];
static _Atomic size_t early_used;

void* early_allocate(size_t alignment, size_t bytes) {
  if (alignment < kEarlyHeader) alignment = kEarlyHeader;
  size_t used = atomic_load(&early_used);
  size_t begin;
  do {
    begin = ((uintptr_t)early + used + kEarlyHeader + alignment - 1) / alignment * alignment -
            (uintptr_t)early;
    if (alignment > kEarlyBytes || bytes > kEarlyBytes || begin + bytes > kEarlyBytes) return NULL;
  } while (!atomic_compare_exchange_weak(&early_used, &used, begin + bytes));
  memcpy(early + begin - kEarlyHeader, &bytes, sizeof bytes);
  touched_mark(early + begin);
  return early + begin;
}

size_t early_size(const void* block) {
  size_t bytes;
  memcpy(&bytes, (const char*)block - kEarlyHeader, sizeof bytes);
  return bytes;
}

void* real_next(const char* name) { return dlsym(RTLD_NEXT, name); }

// Copies a function's address, because ISO C does not convert an object's pointer to a function's.
static void find(void* function, const char* name) {
  void* address = real_next(name);
  memcpy(function, &address, sizeof address);
}

const char* real_file(void) {
  void* address;
  memcpy(&address, &real.malloc, sizeof address);
  Dl_info found;
  return address != NULL && dladdr(address, &found) != 0 && found.dli_fname != NULL
             ? found.dli_fname
             : "";
}

void real_use(void* (*allocate)(size_t), size_t (*usable)(void*)) {
  real.malloc = allocate;
  real.malloc_usable_size = usable;
}

bool real_is_preloaded(void) {
  // No other library has that name, and this library does not export it globally if a heap has
  // loaded it.
  void* const found = dlsym(RTLD_DEFAULT, "loam_record_mark");
  dlerror();
  return found != NULL;
}

typedef struct Range {
  uintptr_t begin;
  uintptr_t end;
} Range;

static Range files[3];
static uint32_t file_count;

bool real_contains(uintptr_t address) {
  for (uint32_t i = 0; i < file_count; ++i)
    if (address >= files[i].begin && address < files[i].end) return true;
  return false;
}

// Stores the file's range if `wanted->begin` lies in it.
static int find_file(struct dl_phdr_info* file, size_t size, void* wanted) {
  (void)size;
  Range range = {UINTPTR_MAX, 0};
  for (size_t i = 0; i < file->dlpi_phnum; ++i) {
    if (file->dlpi_phdr[i].p_type != PT_LOAD) continue;
    const uintptr_t begin = file->dlpi_addr + file->dlpi_phdr[i].p_vaddr;
    const uintptr_t end = begin + file->dlpi_phdr[i].p_memsz;
    if (begin < range.begin) range.begin = begin;
    if (end > range.end) range.end = end;
  }
  Range* const found = wanted;
  if (found->begin < range.begin || found->begin >= range.end) return 0;
  *found = range;
  return 1;
}

void real_add_file(const void* address) {
  Range range = {(uintptr_t)address, (uintptr_t)address};
  if (real_contains(range.begin) || file_count == sizeof files / sizeof *files) return;
  if (dl_iterate_phdr(find_file, &range) != 0) files[file_count++] = range;
}

#define FIND(name) find(&found.name, #name)

void real_find(void) {
  static _Atomic int state;  // 0 new, 1 at work, 2 done
  int expected = 0;
  // While state is 1, only dlsym itself can come here, because no thread can have begun without
  // calloc.
  if (!atomic_compare_exchange_strong(&state, &expected, 1)) return;
  Real found;
  memset(&found, 0, sizeof found);
  FIND(free);
  FIND(calloc);
  FIND(realloc);
  FIND(reallocarray);
  FIND(memalign);
  FIND(aligned_alloc);
  FIND(posix_memalign);
  FIND(valloc);
  FIND(pvalloc);
  FIND(free_sized);
  FIND(free_aligned_sized);
  FIND(cfree);
  FIND(malloc_usable_size);
  FIND(malloc_trim);
  FIND(mmap);
  FIND(munmap);
  FIND(mremap);
  FIND(malloc);
  if (found.malloc == NULL || found.free == NULL || found.calloc == NULL || found.realloc == NULL) {
    const char* words[] = {"loam record: there is no malloc behind libloam-record.so"};
    kernel_say(words, 1);
    abort();
  }
  void* address;
  memcpy(&address, &found.malloc, sizeof address);
  real_add_file(address);
  // An operator delete that ends by a jump to free() seems to be called from here.
  real_add_file(&real);
  real = found;
  operators_find();
  // A failed search here must not look like an error of the program.
  dlerror();
  atomic_store(&state, 2);
}
