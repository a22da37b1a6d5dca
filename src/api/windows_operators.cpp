// Windows: every form of operator new and delete. A file of its own, so that a program with forms
// of its own can leave these in the archive. All forms serve the heap themselves: a program that
// replaces some replaces all that it uses, since the linker takes whole files.
//
// Compiled with exceptions: the C++ run-time is linked statically, and throws.
#include <cstddef>
#include <new>

#include "base/units.h"
#include "heap/heap.h"

namespace {

using namespace loam;

// [new.delete.single]: call the handler until memory appears, it throws, or there is none.
template <class Allocate>
LOAM_COLD void* retry(Allocate allocate) {
  for (;;) {
    const std::new_handler call = std::get_new_handler();
    if (call == nullptr) throw std::bad_alloc();
    call();
    if (void* block = allocate()) return block;
  }
}

LOAM_INLINE void* allocate_or_throw(size_t bytes) {
  void* block = heap::allocate(bytes);
  if (LOAM_LIKELY(block != nullptr)) return block;
  return retry([bytes] { return heap::allocate(bytes); });
}

void* try_aligned(size_t bytes, std::align_val_t alignment) {
  const size_t value = static_cast<size_t>(alignment);
  if (!is_power_of_two(value) || bytes > kLargestRequest - value) return nullptr;
  return heap::allocate_aligned(value, bytes);
}

void* aligned_or_throw(size_t bytes, std::align_val_t alignment) {
  void* block = try_aligned(bytes, alignment);
  if (LOAM_LIKELY(block != nullptr)) return block;
  return retry([=] { return try_aligned(bytes, alignment); });
}

template <class Allocate>
LOAM_INLINE void* or_null(Allocate allocate) {
  try {
    return allocate();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

// NOLINTBEGIN: the forms are the standard's
LOAM_EXPORT void* operator new(size_t n) { return allocate_or_throw(n); }
LOAM_EXPORT void* operator new[](size_t n) { return allocate_or_throw(n); }
LOAM_EXPORT void* operator new(size_t n, std::align_val_t a) { return aligned_or_throw(n, a); }
LOAM_EXPORT void* operator new[](size_t n, std::align_val_t a) { return aligned_or_throw(n, a); }
LOAM_EXPORT void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return or_null([=] { return allocate_or_throw(n); });
}
LOAM_EXPORT void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  return or_null([=] { return allocate_or_throw(n); });
}
LOAM_EXPORT void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return or_null([=] { return aligned_or_throw(n, a); });
}
LOAM_EXPORT void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return or_null([=] { return aligned_or_throw(n, a); });
}
LOAM_EXPORT void operator delete(void* p) noexcept { heap::free(p); }
LOAM_EXPORT void operator delete[](void* p) noexcept { heap::free(p); }
LOAM_EXPORT void operator delete(void* p, size_t n) noexcept { heap::free_sized(p, n); }
LOAM_EXPORT void operator delete[](void* p, size_t n) noexcept { heap::free_sized(p, n); }
LOAM_EXPORT void operator delete(void* p, const std::nothrow_t&) noexcept { heap::free(p); }
LOAM_EXPORT void operator delete[](void* p, const std::nothrow_t&) noexcept { heap::free(p); }
LOAM_EXPORT void operator delete(void* p, std::align_val_t) noexcept { heap::free(p); }
LOAM_EXPORT void operator delete[](void* p, std::align_val_t) noexcept { heap::free(p); }
LOAM_EXPORT void operator delete(void* p, size_t n, std::align_val_t) noexcept {
  heap::free_sized(p, n);
}
LOAM_EXPORT void operator delete[](void* p, size_t n, std::align_val_t) noexcept {
  heap::free_sized(p, n);
}
LOAM_EXPORT void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  heap::free(p);
}
LOAM_EXPORT void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  heap::free(p);
}
// NOLINTEND
