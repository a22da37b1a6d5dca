// Takes up to `wanted` slots of a bin without an owner into `out`, for tests.
#pragma once

#include "small/bin.h"

namespace loam::test {

/// pre: the bin's lock is held
inline unsigned take_slots(Bin& bin, PageHeap& pages, unsigned size_class, void** out,
                           unsigned wanted) {
  Refill refill{size_class, out, wanted};
  bin.take_locked(pages, refill);
  return refill.finish();
}

}  // namespace loam::test
