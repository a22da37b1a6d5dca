#include "loam/buffer_cache.hpp"

#include <cmath>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cpp/counting_source.h"
#include "random.h"

namespace loam {
namespace {

using test::CountingSource;

TEST(SizeSteps, EverySizeIsRoundedUpByLessThanItsBound) {
  using steps = detail::size_steps<8>;
  size_t last = 0;
  for (size_t n = 1; n < 1'000'000; n += 1 + n / 100) {
    const size_t index = steps::index(n), most = steps::most(index);
    ASSERT_GE(most, n);
    ASSERT_LT(most - n, std::max<size_t>(16, n / 8 + 1)) << n;
    ASSERT_EQ(steps::index(most), index);
    ASSERT_EQ(steps::index(most + 1), index + 1);
    ASSERT_GE(index, last);
    last = index;
  }
}

TEST(BufferCache, NoCacheAlwaysAsksTheSource) {
  CountingSource source;
  buffer_cache<no_cache> cache(no_cache(), source);
  for (int i = 0; i < 10; ++i) cache.give_back(cache.get(100));
  EXPECT_EQ(source.requests(), 10u);
  EXPECT_EQ(cache.statistics().misses, 10u);
  EXPECT_EQ(cache.statistics().freed, 10u);
  EXPECT_EQ(cache.statistics().percent_used(), 100.0);
}

TEST(BufferCache, KeepLargestIsFlawedAsTheArticleSays) {
  CountingSource source;
  buffer_cache<keep_largest> cache(keep_largest(1), source);
  const buffer small = cache.get(100), large = cache.get(1000);
  cache.give_back(small);
  EXPECT_EQ(cache.statistics().cached_bytes, 100u);
  cache.give_back(large);
  EXPECT_EQ(cache.statistics().cached_bytes, 1000u) << "the larger one replaces the smaller";
  const buffer b = cache.get(100);
  EXPECT_EQ(b.capacity, 1000u);
  EXPECT_EQ(cache.statistics().percent_used(), 10.0);
  cache.give_back(b);
}

TEST(BufferCache, CutOffKeepsOnlySmallOnesAndOnlyWhileThereIsRoom) {
  CountingSource source;
  buffer_cache<cut_off> cache(cut_off(200, 2), source);
  buffer b[4];
  for (buffer& each : b) each = cache.get(150);
  const buffer large = cache.get(201);
  cache.give_back(large);
  EXPECT_EQ(cache.statistics().cached_buffers, 0u);
  for (const buffer& each : b) cache.give_back(each);
  EXPECT_EQ(cache.statistics().cached_buffers, 2u);
  EXPECT_EQ(source.blocks(), 2u);
  cache.clear();
  EXPECT_EQ(source.blocks(), 0u);
}

TEST(BufferCache, BucketedBoundsWasteDepthAndTotal) {
  CountingSource source;
  buffer_cache cache(bucketed({.largest = 4096, .depth = 2, .most_bytes = 10'000}), source);
  const buffer b = cache.get(1000);
  EXPECT_EQ(b.capacity, 1024u);
  cache.give_back(b);
  EXPECT_EQ(cache.get(961).data, b.data) << "of its class";
  cache.give_back({b.data, 961, b.capacity});
  const buffer smaller = cache.get(960);
  EXPECT_NE(smaller.data, b.data) << "of the class below";
  cache.give_back(smaller);
  const buffer big = cache.get(5000);
  EXPECT_EQ(big.capacity, 5000u) << "not rounded above the largest";
  buffer many[12];
  for (buffer& each : many) each = cache.get(4000);
  for (const buffer& each : many) cache.give_back(each);
  EXPECT_LE(cache.statistics().cached_bytes, 10'000u);
  EXPECT_EQ(cache.statistics().cached_buffers, 3u) << "one of 4096, one of 1024, one of 960";
  cache.clear();
  EXPECT_EQ(cache.statistics().cached_bytes, 0u);
  EXPECT_EQ(source.blocks(), 1u) << "the 5000 is still out";
  cache.give_back(big);
  cache.give_back(buffer());
  EXPECT_EQ(source.blocks(), 0u) << "and never kept";
}

TEST(BufferCache, ReturnsAcrossCachesAddUp) {
  CountingSource source;
  buffer_cache<> a(bucketed(), source), b(bucketed(), source);
  const buffer x = a.get(500);
  b.give_back(x);
  EXPECT_EQ(a.statistics().bytes_needed + b.statistics().bytes_needed, 0u);
  EXPECT_EQ(a.statistics().bytes_allocated + b.statistics().bytes_allocated, 0u);
  EXPECT_EQ(b.get(500).data, x.data);
  b.give_back(x);
}

TEST(BufferCache, EachThreadHasItsOwnAndBuffersMayCross) {
  const buffer b = this_thread_buffer_cache<>().get(300);
  std::thread([&] {
    auto& mine = this_thread_buffer_cache<>();
    mine.give_back(b);
    EXPECT_EQ(mine.get(300).data, b.data);
    mine.give_back(b);
  }).join();
  EXPECT_EQ(this_thread_buffer_cache<>().statistics().hits, 0u);
}

TEST(BufferCache, FreesWhatItKeepsBeforeItGivesUp) {
  CountingSource source;
  buffer_cache cache(bucketed(), source);
  cache.give_back(cache.get(100));
  source.fail_after(0);
  EXPECT_EQ(cache.try_get(5000).data, nullptr);
  EXPECT_EQ(source.blocks(), 0u);
  EXPECT_THROW(static_cast<void>(cache.get(5000)), std::bad_alloc);
  EXPECT_EQ(cache.try_get(SIZE_MAX).data, nullptr);
  EXPECT_EQ(cache.statistics().bytes_needed, 0u);
}

TEST(BufferCache, BorrowedBuffersComeBack) {
  CountingSource source;
  buffer_cache cache(bucketed(), source);
  {
    borrowed_buffer first(cache, 100);
    borrowed_buffer second(std::move(first));
    EXPECT_EQ(first.data(), nullptr);  // NOLINT: the moved-from state is promised
    EXPECT_EQ(second.size(), 100u);
    first = std::move(second);
    EXPECT_NE(first.data(), nullptr);
    cache.give_back(borrowed_buffer(cache, 200).release());
  }
  EXPECT_EQ(cache.statistics().bytes_needed, 0u);
  EXPECT_EQ(cache.statistics().cached_buffers, 2u);
}

TEST(RequestHistogram, SuggestsTheArticlesCutoff) {
  // Half of the requests are 100 bytes, half of the rest 200, and so on: three in four are 200 at
  // most.
  auto random = test::seeded(3);
  LOAM_TRACE_SEED(random);
  request_histogram h;
  EXPECT_EQ(h.suggested_cutoff(), 0u);
  for (int i = 0; i < 20'000; ++i) {
    size_t bytes = 100;
    while (bytes < (1 << 20) && random.chance(50)) bytes *= 2;
    h.add(bytes);
  }
  EXPECT_EQ(h.suggested_cutoff(), 200u);
  EXPECT_EQ(h.suggested_cutoff(0.5), 100u);
  EXPECT_EQ(h.suggested_cutoff(0.9), 800u);
  EXPECT_GE(h.suggested_cutoff(1), size_t{1} << 13);
  request_histogram sum;
  sum.merge(h);
  sum.merge(h);
  EXPECT_EQ(sum.total(), 40'000u);
  EXPECT_EQ(sum.suggested_cutoff(), 200u);
  h.add(0);
  h.add(SIZE_MAX / 4);
  EXPECT_EQ(h.total(), 20'002u);
}

// The article's walk: buffers are disjoint and large enough, and sums are right. Returns the per
// cent used over all steps.
template <typename Policy>
double walk(Policy policy, bool bounded) {
  auto random = test::seeded(4);
  CountingSource source;
  buffer_cache<Policy> cache(policy, source);
  struct Held {
    buffer b;
    unsigned char fill;
  };
  std::vector<Held> held;
  size_t needed = 0, allocated = 0;
  double needed_sum = 0, allocated_sum = 0;
  for (int step = 0; step < 40'000; ++step) {
    if (held.empty() || random.chance(50)) {
      size_t bytes = 100;
      while (bytes < (1 << 20) && random.chance(50)) bytes *= 2;
      bytes -= random.below(30);
      const buffer b = cache.get(bytes);
      EXPECT_GE(b.capacity, bytes);
      if (bounded) {
        EXPECT_LT(b.capacity - bytes, std::max<size_t>(16, bytes / 8 + 1));
      }
      const auto fill = static_cast<unsigned char>(random.next());
      std::memset(b.data, fill, std::min<size_t>(b.capacity, 4096));
      held.push_back({b, fill});
      needed += bytes;
      allocated += b.capacity;
    } else {
      std::swap(held[random.below(held.size())], held.back());
      const Held h = held.back();
      held.pop_back();
      const auto* data = static_cast<const unsigned char*>(h.b.data);
      for (size_t i = 0; i < std::min<size_t>(h.b.size, 4096); i += 7) EXPECT_EQ(data[i], h.fill);
      needed -= h.b.size;
      allocated -= h.b.capacity;
      cache.give_back(h.b);
    }
    const auto& s = cache.statistics();
    EXPECT_EQ(s.bytes_needed, needed);
    EXPECT_EQ(s.bytes_allocated, allocated);
    EXPECT_EQ(s.bytes_allocated + s.cached_bytes, source.bytes());
    EXPECT_EQ(held.size() + s.cached_buffers, source.blocks());
    EXPECT_EQ(s.hits + s.misses, cache.requests().total());
    EXPECT_EQ(s.misses, source.requests());
    if (testing::Test::HasFailure()) return 0;
    needed_sum += static_cast<double>(needed);
    allocated_sum += static_cast<double>(allocated);
  }
  for (const Held& h : held) cache.give_back(h.b);
  return 100 * needed_sum / allocated_sum;
}

TEST(BufferCache, TheFlawedPolicyLeaksAndTheOthersDoNot) {
  EXPECT_EQ(walk(no_cache(), true), 100.0);
  EXPECT_LT(walk(keep_largest(1), false), 10.0);
  EXPECT_LT(walk(keep_largest(10), false), 10.0);
  EXPECT_GT(walk(cut_off(200, 1), false), 90.0);
  EXPECT_GT(walk(bucketed(), true), 90.0);
}

}  // namespace
}  // namespace loam
