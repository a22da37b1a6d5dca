/* dlopen() without RTLD_DEEPBIND, in libloam.so only.
 *
 * A library that is bound deeply finds malloc() in the C library that it needs itself before the
 * one that the process has, and free()s the program's blocks there: under any preloaded heap a
 * program that loads its parts so ends by a signal (Debian's php does). So the flag is taken off,
 * as if the system did not know it; LOAM_DEEP_BINDING=keep leaves it.
 *
 * Thread-safe, as dlopen() is. */
#define _GNU_SOURCE
#if defined(__linux__)
#include <dlfcn.h>
#endif

#if defined(RTLD_DEEPBIND) /* the GNU C library has it */

#include <stdatomic.h>
#include <stddef.h>

/* Of heap/options.cpp. */
__attribute__((visibility("hidden"))) extern _Bool loam_keeps_deep_binding;

/* Of os/system_heap.h: blocks of the system's heap may come with what is loaded now. */
__attribute__((visibility("hidden"))) void loam_find_system_free(void);

typedef void* (*Open)(const char*, int);
static _Atomic(Open) next_open;

__attribute__((cold, noinline)) static Open find_next_open(void) {
  Open found;
  *(void**)(&found) = dlsym(RTLD_NEXT, "dlopen");
  /* relaxed: whoever comes here finds the same */
  atomic_store_explicit(&next_open, found, memory_order_relaxed);
  loam_find_system_free(); /* which calls dlopen() below, and comes no more this way */
  return found;
}

/* The system's looks at its return address for who calls: that library's RUNPATH and namespace
 * count. So the call must be a jump, which -O2 makes of it here; preload.deep_binding notices when
 * it is none. */
__attribute__((visibility("default"))) void* dlopen(const char* file, int mode) {
  Open open = atomic_load_explicit(&next_open, memory_order_relaxed);
  if (open == NULL && (open = find_next_open()) == NULL) return NULL;
  if (!loam_keeps_deep_binding) mode &= ~RTLD_DEEPBIND;
  return open(file, mode);
}

#else
typedef int nothing_to_do_here; /* a file must have something in it */
#endif
