/* Prints, for each function of the standard allocation family, the shared object that serves it:
   one line "NAME PATH", or "NAME -" if none does.  The runner reads this to make sure that a
   preload has taken effect, and to learn which functions are still the C library's. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  static const char *const names[] = {
      "malloc",
      "calloc",
      "realloc",
      "free",
      "reallocarray",
      "posix_memalign",
      "aligned_alloc",
      "memalign",
      "valloc",
      "pvalloc",
      "malloc_usable_size",
      "malloc_trim",
      "mallinfo",
      "mallinfo2",
      "malloc_stats",
      "malloc_info",
      "mallopt",
      "cfree",
      "free_sized",
      "free_aligned_sized",
      "_Znwm",
      "_Znam",
      "_ZnwmRKSt9nothrow_t",
      "_ZnamRKSt9nothrow_t",
      "_ZnwmSt11align_val_t",
      "_ZnamSt11align_val_t",
      "_ZnwmSt11align_val_tRKSt9nothrow_t",
      "_ZnamSt11align_val_tRKSt9nothrow_t",
      "_ZdlPv",
      "_ZdaPv",
      "_ZdlPvm",
      "_ZdaPvm",
      "_ZdlPvRKSt9nothrow_t",
      "_ZdaPvRKSt9nothrow_t",
      "_ZdlPvSt11align_val_t",
      "_ZdaPvSt11align_val_t",
      "_ZdlPvmSt11align_val_t",
      "_ZdaPvmSt11align_val_t",
      "_ZdlPvSt11align_val_tRKSt9nothrow_t",
      "_ZdaPvSt11align_val_tRKSt9nothrow_t",
  };
  for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
    Dl_info where;
    void *function = dlsym(RTLD_DEFAULT, names[i]);
    printf("%s %s\n", names[i],
           function != NULL && dladdr(function, &where) ? where.dli_fname : "-");
  }
  return 0;
}
