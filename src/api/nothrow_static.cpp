// The nothrow forms of operator new in libloam.a. In a static program no dlsym() finds the C++
// runtime's forms, which these would hide.
//
// Only this file is compiled with exceptions. A program that cannot throw needs no C++ runtime for
// it: its references to the runtime are weak.
#include <cstddef>
#include <new>

#include "api/operators.h"
#include "api/or_null.h"

asm(".weak __gxx_personality_v0\n"
    ".weak __cxa_begin_catch\n"
    ".weak __cxa_end_catch\n"
    ".weak _Unwind_Resume\n");

using loam::operators::or_null;

// NOLINTBEGIN: the forms are the standard's
LOAM_REPLACEABLE void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return or_null([=] { return ::operator new(n); });
}
LOAM_REPLACEABLE void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  return or_null([=] { return ::operator new[](n); });
}
LOAM_REPLACEABLE void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return or_null([=] { return ::operator new(n, a); });
}
LOAM_REPLACEABLE void* operator new[](size_t n, std::align_val_t a,
                                      const std::nothrow_t&) noexcept {
  return or_null([=] { return ::operator new[](n, a); });
}
// NOLINTEND
