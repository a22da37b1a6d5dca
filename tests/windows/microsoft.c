// The C interface for Microsoft's target, in C and in C++. This file is only compiled.
#include <loam/loam.h>
#include <loam/record.h>
#include <loam/stats.h>

#if !defined(_MSC_VER)
#error "this is not Microsoft's target"
#endif

size_t loam_test_use(void) {
  struct loam_stats stats;
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  loam_heap* heap = loam_heap_create(&options);
  void* block = loam_alloc(heap, 100);
  stats.size = sizeof stats;
  return loam_stats(heap, &stats) == LOAM_OK ? loam_usable_size(heap, block) : 0;
}
