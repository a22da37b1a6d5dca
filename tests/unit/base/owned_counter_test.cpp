#include "base/owned_counter.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace loam {
namespace {

struct Counts {
  uint64_t calls;
  uint64_t bins[3];
  uint64_t bytes;
};

TEST(OwnedCounter, SumsHaveEveryField) {
  Counts sum{1, {2, 3, 4}, ~uint64_t{0}};
  add_counts(sum, Counts{10, {20, 30, 40}, 2});
  EXPECT_EQ(sum.calls, 11u);
  EXPECT_EQ(sum.bins[0], 22u);
  EXPECT_EQ(sum.bins[1], 33u);
  EXPECT_EQ(sum.bins[2], 44u);
  EXPECT_EQ(sum.bytes, 1u) << "counters wrap";
}

TEST(OwnedCounter, AReaderSeesOnlyValuesThatWere) {
  constexpr uint64_t kStep = 0x1'0000'0001;  // both halves change with every call
  Counts counts{};
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    uint64_t last = 0;
    while (!stop) {
      Counts seen{};
      add_counts(seen, counts);
      EXPECT_EQ(seen.calls % kStep, 0u);
      EXPECT_GE(seen.calls, last);
      last = seen.calls;
    }
  });
  for (int i = 0; i < 1'000'000; ++i) count_up(counts.calls, kStep);
  stop = true;
  reader.join();
  count_up(counts.calls);
  EXPECT_EQ(counts.calls, 1'000'000 * kStep + 1);
}

}  // namespace
}  // namespace loam
