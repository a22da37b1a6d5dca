// The functions that the program would call without the recorder: the next definitions after the
// recorder's own.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel.h"

typedef struct Real {
  void* (*malloc)(size_t);
  void (*free)(void*);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void* (*reallocarray)(void*, size_t, size_t);
  void* (*memalign)(size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*valloc)(size_t);
  void* (*pvalloc)(size_t);
  void (*free_sized)(void*, size_t);
  void (*free_aligned_sized)(void*, size_t, size_t);
  void (*cfree)(void*);
  size_t (*malloc_usable_size)(void*);
  int (*malloc_trim)(size_t);
  void* (*mmap)(void*, size_t, int, int, int, off_t);
  int (*munmap)(void*, size_t);
  void* (*mremap)(void*, size_t, size_t, int, ...);
} Real;

extern LOAM_HIDDEN Real real;

// Looks all of them up, once. The early area serves dlsym's allocations meanwhile.
LOAM_COLD void real_find(void);
// Whether they are known. If not, dlsym made this call.
static inline bool real_is_ready(void) {
  if (LOAM_LIKELY(real.malloc != NULL)) return true;
  real_find();
  return real.malloc != NULL;
}
// The file that contains the real malloc.
const char* real_file(void);
// For a process that runs already: sets the functions of its heap.
void real_use(void* (*allocate)(size_t), size_t (*usable)(void*));
// Whether this library was loaded with the program, and not by a heap that is to be recorded.
bool real_is_preloaded(void);
// The next definition of a function; null if there is none.
void* real_next(const char* name);

// A small static area for blocks that are allocated while the functions are looked up. Only dlsym
// gets such a block, and it never asks for a block's size. So malloc_usable_size() has no hook: the
// program's question goes to its allocator, as without the recorder.
enum { kEarlyBytes = 64 * 1024 };
extern LOAM_HIDDEN char early[kEarlyBytes];
void* early_allocate(size_t alignment, size_t bytes);
static inline bool early_has(const void* block) {
  return (uintptr_t)block - (uintptr_t)early < kEarlyBytes;
}
size_t early_size(const void* block);

// Whether an address lies in a file that has real functions, or in the recorder's file.
bool real_contains(uintptr_t address);
void real_add_file(const void* address);
