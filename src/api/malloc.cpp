// The C allocation family: argument checks, errno, and calls of the heap. Zero-sized requests give
// unique pointers; realloc(p, 0) frees and returns null, as glibc does.
//
// Any thread may call every function. Failure sets errno to ENOMEM; free() keeps errno.
#include <malloc.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "api/c_family.h"
#include "api/operators.h"
#include "base/units.h"
#include "heap/heap.h"
#include "os/os.h"
#include "pages/page_heap.h"

namespace {

using namespace loam;

using c_family::or_out_of_memory;
using c_family::out_of_memory;

// bytes rounded up to a multiple of alignment may overflow; no heap can serve such a request.
bool too_large(size_t alignment, size_t bytes) { return bytes > kLargestRequest - alignment; }

void* aligned(size_t alignment, size_t bytes) {
  if (LOAM_UNLIKELY(alignment > kLargestRequest || too_large(alignment, bytes)))
    return out_of_memory();
  return or_out_of_memory(heap::allocate_aligned(alignment, bytes));
}

size_t next_power_of_two(size_t n) {
  size_t power = 16;
  while (power < n && power < kLargestRequest) power *= 2;
  return power;
}

// `strings` and `loam allocators` read this out of the file.
__attribute__((used)) const char identification[] = "libloam " LOAM_VERSION;

void start_library() {
  heap::start();
  operators::start();
}
// Runs before every other constructor of a static program, whatever its priority: priorities from
// 101 on are the program's.
__attribute__((section(".init_array.00000"), used)) void (*first_constructor)() = &start_library;

// Runs after all other destructors.
__attribute__((destructor(101))) void end_library() { heap::stop(); }

}  // namespace

extern "C" {

// The kernel counts memory that the heap only reserves, and refuses all of it if the sum exceeds
// the limit on locked memory. Weak: a statically linked program may have an mlockall() of its own.
LOAM_EXPORT __attribute__((weak)) int mlockall(int flags) {
  return page_heap.lock_all_memory(flags);
}

LOAM_EXPORT void* malloc(size_t bytes) { return heap::allocate(bytes); }

LOAM_EXPORT void free(void* block) { heap::free(block); }

LOAM_EXPORT void* calloc(size_t count, size_t bytes) {
  return c_family::allocate_zeroed(count, bytes);
}

LOAM_EXPORT void* realloc(void* block, size_t bytes) { return c_family::reallocate(block, bytes); }

LOAM_EXPORT void* reallocarray(void* block, size_t count, size_t bytes) {
  size_t total;
  if (LOAM_UNLIKELY(__builtin_mul_overflow(count, bytes, &total))) return out_of_memory();
  return realloc(block, total);
}

LOAM_EXPORT int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  // POSIX leaves errno open here; glibc sets it, and its tests require that.
  void* block = aligned(alignment, bytes);
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}

LOAM_EXPORT void* aligned_alloc(size_t alignment, size_t bytes) {
  if (LOAM_UNLIKELY(!is_power_of_two(alignment))) {
    os::set_errno_invalid();
    return nullptr;
  }
  return aligned(alignment, bytes);
}

LOAM_EXPORT void* memalign(size_t alignment, size_t bytes) {
  // glibc rounds other alignments up to a power of two; so does Loam, since old programs rely on
  // it. A power of two above kLargestRequest is valid and cannot be served: aligned() says so.
  if (LOAM_UNLIKELY(alignment > kLargestRequest && !is_power_of_two(alignment))) {
    os::set_errno_invalid();
    return nullptr;
  }
  return aligned(is_power_of_two(alignment) ? alignment : next_power_of_two(alignment), bytes);
}

LOAM_EXPORT void* valloc(size_t bytes) { return aligned(os::granularity(), bytes); }

LOAM_EXPORT void* pvalloc(size_t bytes) {
  const size_t grain = os::granularity();
  if (too_large(grain, bytes)) return out_of_memory();
  return aligned(grain, round_up(bytes, grain));
}

LOAM_EXPORT void cfree(void* block) { heap::free(block); }
LOAM_EXPORT void free_sized(void* block, size_t bytes) { heap::free_sized(block, bytes); }
LOAM_EXPORT void free_aligned_sized(void* block, size_t, size_t bytes) {
  heap::free_sized(block, bytes);
}

// The C library's own names of these functions. Programs and libraries call them to bypass a
// replacement of the others, and free a block of one of these with one of the others.
LOAM_EXPORT void* __libc_malloc(size_t bytes) { return heap::allocate(bytes); }
LOAM_EXPORT void __libc_free(void* block) { heap::free(block); }
LOAM_EXPORT void __libc_cfree(void* block) { heap::free(block); }
LOAM_EXPORT void* __libc_calloc(size_t count, size_t bytes) { return calloc(count, bytes); }
LOAM_EXPORT void* __libc_realloc(void* block, size_t bytes) { return realloc(block, bytes); }
LOAM_EXPORT void* __libc_reallocarray(void* block, size_t count, size_t bytes) {
  return reallocarray(block, count, bytes);
}
LOAM_EXPORT void* __libc_memalign(size_t alignment, size_t bytes) {
  return memalign(alignment, bytes);
}
LOAM_EXPORT void* __libc_valloc(size_t bytes) { return valloc(bytes); }
LOAM_EXPORT void* __libc_pvalloc(size_t bytes) { return pvalloc(bytes); }
LOAM_EXPORT int __posix_memalign(void** out, size_t alignment, size_t bytes) {
  return posix_memalign(out, alignment, bytes);
}

LOAM_EXPORT size_t malloc_usable_size(void* block) { return heap::usable_size_or_report(block); }

LOAM_EXPORT int malloc_trim(size_t) {
  os::ErrnoGuard guard;
  return heap::compact().released_bytes != 0 ? 1 : 0;
}

}  // extern "C"
