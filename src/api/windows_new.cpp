// Windows: operator new and delete without an alignment; windows_new_aligned.cpp has the others.
// The C++ run-time is linked statically and defines every other form by these, as the standard
// says. So if a program replaces the pair, the linker leaves this file in the archive, and all
// forms use the program's pair.
//
// Compiled with exceptions, because the C++ run-time throws.
#include <cstddef>
#include <new>

#include "api/operators.h"

// NOLINTBEGIN: the forms are the standard's
LOAM_EXPORT void* operator new(size_t n) { return loam::operators::allocate_or_throw(n); }
LOAM_EXPORT void operator delete(void* p) noexcept { loam::heap::free(p); }
// NOLINTEND
