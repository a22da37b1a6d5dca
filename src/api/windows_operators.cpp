// Windows: every form of operator new and delete. A file of its own, so that a program with forms
// of its own can leave these in the archive. All forms serve the heap themselves: a program that
// replaces some replaces all that it uses, since the linker takes whole files.
//
// Compiled with exceptions: the C++ run-time is linked statically, and throws.
#include <cstddef>
#include <new>

#include "api/operators.h"
#include "api/or_null.h"

using namespace loam;
using operators::aligned_or_throw;
using operators::allocate_or_throw;
using operators::or_null;

void operators::throw_bad_alloc() { throw std::bad_alloc(); }
std::new_handler operators::new_handler() { return std::get_new_handler(); }

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
