// A program for Microsoft's target, in C and in C++: it calls loam.dll through the C interface. It
// includes no header of a C run-time, because not every machine has one for this target.
//
// Exit status: 0, or the line of what is not so.
#include <loam/loam.h>
#include <loam/record.h>
#include <loam/stats.h>

#if !defined(_MSC_VER)
#error "this is not Microsoft's target"
#endif

#define CHECK(what) \
  if (!(what)) return __LINE__

int main(void) {
  struct loam_stats stats;
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  loam_heap* heap;
  char* block;
  int i;
  CHECK(loam_version() == LOAM_HEADER_VERSION);
  options.maximum = (size_t)1 << 24;
  heap = loam_heap_create(&options);
  CHECK(heap != NULL);
  block = (char*)loam_alloc(heap, 100);
  CHECK(block != NULL && loam_usable_size(heap, block) >= 100 && loam_heap_of(block) == heap);
  for (i = 0; i < 100; ++i) block[i] = (char)i;
  block = (char*)loam_realloc(heap, block, 100000);
  CHECK(block != NULL && block[99] == 99);
  CHECK(loam_alloc(heap, (size_t)1 << 25) == NULL); /* more than the maximum */
  stats.size = sizeof stats;
  CHECK(loam_stats(heap, &stats) == LOAM_OK);
  CHECK(stats.live_blocks == 1 && stats.live_bytes >= 100000 &&
        stats.charged_bytes >= stats.live_bytes);
  CHECK(loam_free(heap, block) == LOAM_OK);
  CHECK(loam_heap_destroy(heap) == LOAM_OK);
  return 0;
}
