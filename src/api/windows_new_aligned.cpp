// Windows: operator new and delete with an alignment (windows_new.cpp).
#include <cstddef>
#include <new>

#include "api/operators.h"

// NOLINTBEGIN: the forms are the standard's
LOAM_EXPORT void* operator new(size_t n, std::align_val_t a) {
  return loam::operators::aligned_or_throw(n, a);
}
LOAM_EXPORT void operator delete(void* p, std::align_val_t) noexcept { loam::heap::free(p); }
// NOLINTEND
