// A short life of the whole heap, once for every call of the system that it makes. That call is
// refused, or that one and all later ones. In each case a request is served or gets null with
// ENOMEM, the heap is valid afterwards, and nothing is lost once the system gives memory again.
// Blocks are at pretended addresses and are never touched.
#include <cerrno>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "heap/heap.h"
#include "pages/huge_map.h"

namespace loam {
namespace {

namespace fake = os::fake;

class Refusals : public testing::Test {
 protected:
  void TearDown() override {
    fake::clear_failures();
    heap::compact();
    EXPECT_TRUE(heap::is_valid());
    EXPECT_EQ(page_heap.stats().used.count, 0u);
    EXPECT_EQ(huge_map.totals().blocks, 0u);
  }

  /// One result: a block, or null with ENOMEM.
  bool took(void* block) {
    if (block == nullptr) {
      EXPECT_EQ(errno, ENOMEM);
      ++nulls_;
      return false;
    }
    live_.push_back(block);
    return true;
  }

  /// Every kind of block, made in every way: small, a run of pages, a mapping of its own; aligned,
  /// resized; freed in two steps with a trim between them. Returns how many requests got null.
  int live_once() {
    nulls_ = 0;
    constexpr size_t kSizes[] = {16, 200, 3000, 30'000, 200'000, size_t{5} << 20, size_t{40} << 20};
    for (const size_t bytes : kSizes) {
      for (int i = 0; i < 6; ++i) {
        errno = ENOMEM;  // errno, which the callers of heap:: set.
        took(heap::allocate(bytes + static_cast<size_t>(i) * 100));
      }
      took(heap::allocate_aligned(8192, bytes));
    }
    for (size_t i = 0; i < live_.size(); i += 2) {
      heap::free(live_[i]);
      live_[i] = nullptr;
    }
    heap::compact();
    for (size_t i = 0; i < 10; ++i) took(heap::allocate(1000 + i * 7000));
    EXPECT_TRUE(heap::is_valid());
    for (void* block : live_) heap::free(block);
    live_.clear();
    heap::compact();
    return nulls_;
  }

 private:
  std::vector<void*> live_;
  int nulls_ = 0;
};

TEST_F(Refusals, EachCallOfTheSystemRefusedOnceOrForGoodLeavesTheHeapWhole) {
  EXPECT_EQ(live_once(), 0);
  const uint64_t start = fake::fallible_calls();
  EXPECT_EQ(live_once(), 0);
  const uint64_t calls = fake::fallible_calls() - start;
  ASSERT_GT(calls, 20u);
  int nulls = 0;
  for (const uint64_t count : {uint64_t{1}, fake::kForever}) {
    for (uint64_t nth = 1; nth <= calls; ++nth) {
      SCOPED_TRACE(testing::Message()
                   << "call " << nth << " of " << calls << ", " << count << " refused");
      fake::fail_any(nth, count);
      nulls += live_once();
      ASSERT_TRUE(heap::is_valid());
      fake::clear_failures();
      // Pages that a refused purge left dirty are purged now, and every request is served.
      ASSERT_EQ(live_once(), 0);
      ASSERT_TRUE(heap::is_valid());
      ASSERT_EQ(page_heap.stats().used.count, 0u);
      ASSERT_EQ(huge_map.totals().blocks, 0u);
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_GT(nulls, 0) << "the refusals must have been felt";
}

}  // namespace
}  // namespace loam
