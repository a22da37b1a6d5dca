// What the Rust crate calls, beside the C functions of <loam/loam.h>: the heap behind malloc(), by
// names of its own. Compiled with the heap's sources as one translation unit, so that the fast
// paths are part of these functions.
//
// With LOAM_OVERRIDE the sources of malloc() are part of the unit and start and end the heap.
// Without it the program keeps its malloc(), and this file does both.
#include "heap/heap.h"

#include "base/units.h"

using namespace loam;

#if !defined(LOAM_OVERRIDE)
namespace {

void start_library() { heap::start(); }
__attribute__((section(".init_array.00000"), used)) void (*first_constructor)() = &start_library;

__attribute__((destructor(101))) void end_library() { heap::stop(); }

}  // namespace
#endif

extern "C" {

LOAM_EXPORT void* loam_rust_alloc(size_t bytes) { return heap::allocate(bytes); }
LOAM_EXPORT void* loam_rust_zalloc(size_t bytes) { return heap::allocate_zeroed(bytes); }
// pre: `alignment` is a power of two
LOAM_EXPORT void* loam_rust_aligned_alloc(size_t alignment, size_t bytes) {
  if (LOAM_UNLIKELY(alignment > kLargestRequest || bytes > kLargestRequest - alignment))
    return nullptr;
  return heap::allocate_aligned(alignment, bytes);
}
// pre: `block` is live, and `bytes` is not 0
LOAM_EXPORT void* loam_rust_realloc(void* block, size_t bytes) {
  return heap::reallocate(block, bytes);
}
LOAM_EXPORT void loam_rust_free(void* block, size_t bytes) { heap::free_sized(block, bytes); }
LOAM_EXPORT size_t loam_rust_usable_size(void* block) { return heap::usable_size_or_report(block); }
// Free memory goes back to the system; how many bytes of it.
LOAM_EXPORT size_t loam_rust_trim() { return heap::compact().released_bytes; }

}  // extern "C"
