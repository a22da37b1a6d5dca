// Blocks are aligned as asked from 1 byte to 4 MiB, at every size; wrong alignments are refused.
#include "check.h"

static void check_block(void* block, size_t alignment, size_t size, uint64_t seed) {
  CHECK(block != NULL);
  CHECK_EQUAL((uintptr_t)block % alignment, 0);
  CHECK(malloc_usable_size(block) >= size);
  fill_pattern(block, size, seed);
}

int main(void) {
  const size_t kSizes[] = {0,
                           1,
                           7,
                           8,
                           16,
                           17,
                           24,
                           48,
                           100,
                           128,
                           129,
                           1000,
                           1024,
                           4095,
                           4096,
                           4097,
                           10000,
                           32768,
                           32769,
                           65536,
                           65536 - 32,
                           100000,
                           1 << 20,
                           (1 << 20) - 80,
                           (2 << 20) + 1,
                           5 << 20};
  enum { kCount = sizeof kSizes / sizeof kSizes[0] };
  for (size_t alignment = 1; alignment <= (size_t)4 << 20; alignment *= 2) {
    void* kept[kCount];
    for (int i = 0; i < kCount; ++i) {
      const size_t size = kSizes[i];
      kept[i] = opaque(memalign(alignment, size));
      check_block(kept[i], alignment, size, (uint64_t)i + alignment);

      if (alignment >= sizeof(void*)) {
        void* block = NULL;
        CHECK_EQUAL(posix_memalign(&block, alignment, size), 0);
        check_block(block, alignment, size, 1);
        // realloc keeps the contents of an aligned block; it need not keep the alignment.
        block = opaque(realloc(block, size + 1000));
        CHECK(block != NULL && has_pattern(block, size, 1));
        free(block);
      }
      void* const block = opaque(aligned_alloc(alignment, size));
      check_block(block, alignment, size, 2);
      free(block);
    }
    for (int i = 0; i < kCount; ++i) {
      CHECK(has_pattern(kept[i], kSizes[i], (uint64_t)i + alignment));
      free(kept[i]);
    }
  }

  // malloc itself aligns for every standard type, once the block is large enough to hold one.
  for (size_t size = 1; size < 5000; ++size) {
    void* const block = opaque(malloc(size));
    CHECK_EQUAL((uintptr_t)block % (size >= 16 ? 16 : 8), 0);
    free(block);
  }

  void* block = (void*)(uintptr_t)0x1234;
  errno = 4321;
  CHECK_EQUAL(posix_memalign(&block, opaque_size(0), 100), EINVAL);
  CHECK_EQUAL(posix_memalign(&block, opaque_size(4), 100), EINVAL);
  CHECK_EQUAL(posix_memalign(&block, opaque_size(24), 100), EINVAL);
  CHECK_EQUAL(posix_memalign(&block, opaque_size(SIZE_MAX), 100), EINVAL);
  CHECK((uintptr_t)block == 0x1234);
  return 0;
}
