// C23 free_sized and free_aligned_sized give blocks back, and take null.
#include <dlfcn.h>

#include "check.h"

int main(void) {
  void (*const free_sized_function)(void*, size_t) =
      (void (*)(void*, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "free_sized");
  void (*const free_aligned_sized_function)(void*, size_t, size_t) =
      (void (*)(void*, size_t, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "free_aligned_sized");
  if (free_sized_function == NULL) SKIP("this malloc has no free_sized");
  CHECK(free_aligned_sized_function != NULL);

  free_sized_function(NULL, 0);
  free_aligned_sized_function(NULL, 64, 0);
  for (int round = 0; round < 2000; ++round) {
    for (size_t size = 1; size <= 1 << 22; size = size * 3 + 1) {
      void* const block = opaque(malloc(size));
      CHECK(block != NULL);
      ((char*)block)[size - 1] = 1;
      free_sized_function(block, size);
      if (size > 1 << 16 && round > 20) break;
    }
    for (size_t alignment = 16; alignment <= 1 << 16; alignment *= 4) {
      void* const block = opaque(aligned_alloc(alignment, alignment * 2));
      CHECK(block != NULL && (uintptr_t)block % alignment == 0);
      free_aligned_sized_function(block, alignment, alignment * 2);
    }
  }
  // If nothing had been freed, the loops above would have kept gigabytes.
  CHECK(resident_kib() < 256 * 1024);
  return 0;
}
