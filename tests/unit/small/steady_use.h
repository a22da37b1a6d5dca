// A program in steady use, on the pretended system.
#pragma once

#include "fake_system/fake.h"
#include "pages/page_heap.h"

namespace loam::test {

/// Lasts so long that the purge leaves the next freed memory alone.
inline void use_for_a_while(PageHeap& pages) {
  for (int i = 0; i < 10; ++i) {
    os::fake::advance_ms(100);
    pages.tick();
  }
}

}  // namespace loam::test
