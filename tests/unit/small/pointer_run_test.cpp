// Runs of pointers, compared with a plain loop.
#include "small/pointer_run.h"

#include <vector>

#include <gtest/gtest.h>

namespace loam {
namespace {

void* address(uintptr_t number) { return reinterpret_cast<void*>(number); }

TEST(PointerRun, ItsLengthIsThatUpToTheFirstOneElsewhere) {
  for (const ptrdiff_t step : {48, -48}) {
    for (unsigned count = 1; count <= 14; ++count) {
      for (unsigned stray = 1; stray <= count; ++stray) {  // count: none
        std::vector<void*> pointers;
        uintptr_t next = 0x100000;
        for (unsigned i = 0; i < count; ++i, next += static_cast<uintptr_t>(step)) {
          pointers.push_back(address(i == stray ? next + 16 : next));
        }
        EXPECT_EQ(run_length(pointers.data(), count, step), stray) << count;
      }
    }
  }
}

TEST(PointerRun, ItIsWrittenDownwardsAndNothingBeside) {
  for (unsigned count = 0; count <= 14; ++count) {
    std::vector<void*> out(20, nullptr);
    EXPECT_EQ(fill_run_downwards(out.data() + 17, 0x1000, 80, count), out.data() + 17 - count);
    for (unsigned i = 0; i < 20; ++i) {
      const bool inside = i < 17 && i >= 17 - count;
      EXPECT_EQ(out[i], inside ? address(0x1000 + 80 * (16 - i)) : nullptr) << count << ", " << i;
    }
  }
}

}  // namespace
}  // namespace loam
