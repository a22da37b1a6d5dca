// Classes with several bins behind malloc(): counters add up, and a child that is forked meanwhile
// has all of the bins.
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cache/cache_registry.h"
#include "counters/stats.h"
#include "heap/blocks.h"
#include "heap/equations.h"
#include "heap/heap.h"
#include "this_process.h"

namespace loam {
namespace {

using test::expect_equations;
using test::snapshot;

TEST(BinsByHome, AddUpAndAreWholeInAChild) {
  test::start_once();
  constexpr unsigned kThreads = 4;
  const size_t sizes[] = {32, 64, 400, 2048};
  for (const size_t bytes : sizes) {
    const unsigned c = class_for(bytes);
    while (default_small_heap.bins_in_use(c) != MixedHeap::kHomes)
      default_small_heap.use_more_bins(c);
  }
  std::atomic<unsigned> ready{0};
  std::atomic<bool> go_on{false};
  std::vector<std::vector<void*>> kept(kThreads);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      test::Random random = test::seeded(t);
      std::vector<void*>& own = kept[t];
      for (unsigned round = 0; round < 4; ++round) {
        for (const size_t bytes : sizes) {
          for (size_t k = 0; k < (size_t{512} << 10) / bytes; ++k)
            own.push_back(heap::allocate(bytes));
        }
        for (size_t keep = own.size() / 4; own.size() > keep; own.pop_back()) {
          std::swap(own[random.below(static_cast<uint32_t>(own.size()))], own.back());
          heap::free(own.back());
        }
      }
      ++ready;
      // Continues while the child is made.
      while (!go_on) {
        void* some[200];
        for (void*& block : some) block = heap::allocate(sizes[random.below(4)]);
        for (void* block : some) heap::free(block);
      }
    });
  }
  while (ready != kThreads) std::this_thread::yield();
  EXPECT_TRUE(heap::is_valid());
  const auto child = test::fork();
  if (child == 0) {
    test::alarm(60);
    for (const auto& own : kept) {
      for (void* block : own) heap::free(block);
    }
    if (!heap::is_valid()) _exit(2);
    heap::compact();
    if (!heap::is_valid()) _exit(3);
    void* block = heap::allocate(64);
    heap::free(block);
    _exit(block == nullptr ? 4 : 0);
  }
  int status = 0;
  test::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  go_on = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(heap::is_valid());
  auto s = snapshot();
  expect_equations(*s);
  size_t live = 0;
  for (const auto& own : kept) live += own.size();
  size_t counted = 0;
  for (const size_t bytes : sizes) counted += s->classes[class_for(bytes)].live;
  EXPECT_GE(counted, live);
  EXPECT_LT(counted, live + 2000) << "what this program has beside";
  for (const auto& own : kept) {
    for (void* block : own) heap::free(block);
  }
  cache_registry.flush_current();
  heap::compact();
  EXPECT_TRUE(heap::is_valid());
  s = snapshot();
  expect_equations(*s);
  EXPECT_EQ(s->mixed_spans, 0u);
}

}  // namespace
}  // namespace loam
