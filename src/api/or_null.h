// For the files that are compiled with exceptions: nothrow forms that call throwing forms.
#pragma once

#include "base/config.h"

namespace loam::operators {

template <class Allocate>
LOAM_INLINE void* or_null(Allocate allocate) {
  try {
    return allocate();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace loam::operators
