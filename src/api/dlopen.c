/* dlopen() without RTLD_DEEPBIND, in libloam.so only.
 *
 * Under RTLD_DEEPBIND a library finds malloc() in the C library that it needs before it finds the
 * process's malloc(), and then free()s the program's blocks in the C library. A program that loads
 * its parts in this way ends by a signal under every preloaded heap (Debian's php does). So this
 * dlopen() removes the flag, as if the system did not have it; LOAM_DEEP_BINDING=keep leaves it.
 *
 * Thread-safe, as dlopen() is. */
#define _GNU_SOURCE
#if defined(__linux__)
#include <dlfcn.h>
#endif

#if defined(RTLD_DEEPBIND) /* the GNU C library has it */

#include <stdatomic.h>
#include <stddef.h>

/* Declared in heap/options.h, defined in heap/options.cpp. */
__attribute__((visibility("hidden"))) extern _Bool loam_keeps_deep_binding;

/* Defined for os/system_heap.h: the library that is loaded now may bring blocks of the system's
 * heap. */
__attribute__((visibility("hidden"))) void loam_find_system_free(void);

typedef void* (*Open)(const char*, int);
static _Atomic(Open) next_open;

__attribute__((cold, noinline)) static Open find_next_open(void) {
  Open found;
  *(void**)(&found) = dlsym(RTLD_NEXT, "dlopen");
  /* relaxed: every thread finds the same value */
  atomic_store_explicit(&next_open, found, memory_order_relaxed);
  loam_find_system_free(); /* it calls dlopen() below, which finds next_open set */
  return found;
}

/* The system's dlopen() finds its caller by the return address: the calling library's RUNPATH and
 * namespace count. So this call must be a jump, and -O2 makes it one; the test preload.deep_binding
 * fails if it is not. */
__attribute__((visibility("default"))) void* dlopen(const char* file, int mode) {
  Open open = atomic_load_explicit(&next_open, memory_order_relaxed);
  if (open == NULL && (open = find_next_open()) == NULL) return NULL;
  if (!loam_keeps_deep_binding) mode &= ~RTLD_DEEPBIND;
  return open(file, mode);
}

#else
typedef int nothing_to_do_here; /* a file must have a declaration in it */
#endif
