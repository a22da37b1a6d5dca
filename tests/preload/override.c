// The override works: each function of the family that this program sees is in libloam.
#include <dlfcn.h>

#include "check.h"

static const char* const kFamily[] = {
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
    // operator new and delete, plain and array: plain, nothrow, aligned, aligned nothrow, sized.
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

int main(void) {
  int missing = 0;
  for (size_t i = 0; i < sizeof kFamily / sizeof kFamily[0]; ++i) {
    Dl_info info = {0};
    void* const address = dlsym(RTLD_DEFAULT, kFamily[i]);
    const bool ours =
        address != NULL && dladdr(address, &info) != 0 && strstr(info.dli_fname, "libloam") != NULL;
    if (!ours) {
      dprintf(2, "%s is served by %s\n", kFamily[i], address == NULL ? "nobody" : info.dli_fname);
      ++missing;
    }
  }
  CHECK_EQUAL(missing, 0);

  // The functions that the compiler bound at link time must be those that dlsym finds.
  Dl_info info = {0};
  CHECK(dladdr((void*)(uintptr_t)&malloc, &info) != 0);
  CHECK(strstr(info.dli_fname, "libloam") != NULL);
  return 0;
}
