#include "loam/pool.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "cpp/counting_source.h"
#include "random.h"

namespace loam {
namespace {

using test::CountingSource;
using test::Tracked;

TEST(Pool, ConstructsDestroysAndReusesTheLastSlot) {
  Tracked::live = 0;
  CountingSource source;
  pool<Tracked> p(source);
  EXPECT_EQ(source.requests(), 0u);
  Tracked* a = p.construct(1);
  Tracked* b = p.construct(2);
  EXPECT_NE(a, b);
  p.destroy(a);
  p.destroy(nullptr);
  EXPECT_EQ(Tracked::live, 1);
  EXPECT_EQ(p.construct(3), a) << "the slot that was used last is the warmest";
  EXPECT_EQ(p.size(), 2u);
  p.destroy(a);
  p.destroy(b);
  EXPECT_EQ(Tracked::live, 0);
}

TEST(Pool, AConstructorThatThrowsLeavesTheSlotFree) {
  Tracked::live = 0;
  CountingSource source;
  pool<Tracked> p(source);
  Tracked* a = p.construct(1);
  p.destroy(a);
  Tracked::throw_at = 0;
  EXPECT_THROW(static_cast<void>(p.construct(2)), std::bad_alloc);
  Tracked::throw_at = -1;
  EXPECT_EQ(p.size(), 0u);
  EXPECT_EQ(p.construct(3), a);
  p.destroy(a);
  source.fail_after(0);
  for (size_t i = 0; i < p.capacity(); ++i) static_cast<void>(p.construct(0));
  EXPECT_THROW(static_cast<void>(p.construct(0)), std::bad_alloc);
}

TEST(Pool, GrowsGeometricallyUpToTheLargestBlock) {
  CountingSource source;
  struct Thing {
    char bytes[48];
  };
  pool<Thing> p(source, {.first_slots = 16, .largest_block = 64 << 10});
  for (int i = 0; i < 100'000; ++i) static_cast<void>(p.construct());
  EXPECT_LE(source.largest(), 64u << 10);
  EXPECT_GT(source.largest(), 60u << 10);
  EXPECT_LT(source.requests(), 90u);
  EXPECT_LT(source.bytes(), 100'000u * 48 * 102 / 100 + (64 << 10));
  EXPECT_EQ(p.bytes(), source.bytes());
}

TEST(Pool, HonoursAlignmentAndSmallTypes) {
  struct alignas(128) Wide {
    char c;
  };
  pool<Wide> wide;
  pool<char> narrow;
  std::set<void*> seen;
  for (int i = 0; i < 200; ++i) {
    Wide* w = wide.construct();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(w) % 128, 0u);
    EXPECT_TRUE(seen.insert(w).second);
    EXPECT_TRUE(seen.insert(narrow.construct('x')).second);
  }
}

TEST(Pool, ShrinkReturnsExactlyTheEmptyBlocks) {
  CountingSource source;
  slot_pool p(64, 16, source, {.first_slots = 10, .largest_block = 32 + 640});
  std::vector<void*> slots;
  for (int i = 0; i < 100; ++i) slots.push_back(p.allocate());
  EXPECT_EQ(source.blocks(), 10u);
  EXPECT_EQ(p.shrink(), 0u);
  for (int i = 0; i < 100; ++i) {
    if (i / 10 % 2 == 1 || i % 10 != 3) p.deallocate(slots[static_cast<size_t>(i)]);
  }
  EXPECT_GT(p.shrink(), 0u);
  EXPECT_EQ(source.blocks(), 5u);
  EXPECT_EQ(p.size(), 5u);
  EXPECT_EQ(p.capacity(), 50u);
  for (int i = 0; i < 45; ++i) static_cast<void>(p.allocate());
  EXPECT_EQ(source.blocks(), 5u) << "all free slots of the other blocks are still there";
  p.release();
  EXPECT_EQ(source.blocks(), 0u);
}

TEST(Pool, MovesAndSwaps) {
  CountingSource source;
  pool<int> a(source);
  int* x = a.construct(7);
  pool<int> b(std::move(a));
  EXPECT_EQ(b.size(), 1u);
  EXPECT_EQ(a.size(), 0u);  // NOLINT: the moved-from state is promised
  int* y = a.construct(8);
  a.destroy(y);
  b.destroy(x);
  a = std::move(b);
  EXPECT_EQ(a.size(), 0u);
}

TEST(PoolAllocator, NodesComeFromPoolsAndArraysDoNot) {
  CountingSource source;
  {
    node_pools pools(source);
    using Pair = std::pair<const int, std::string>;
    std::map<int, std::string, std::less<>, pool_allocator<Pair>> m(pools);
    std::unordered_map<int, std::string, std::hash<int>, std::equal_to<>, pool_allocator<Pair>> u(
        pools);
    std::list<Tracked, pool_allocator<Tracked>> l(pools);
    std::set<int, std::less<>, pool_allocator<int>> s(pools);
    std::vector<int, pool_allocator<int>> v(pools);
    for (int i = 0; i < 1000; ++i) {
      m[i] = u[i] = std::to_string(i);
      l.emplace_back(i);
      s.insert(i);
      v.push_back(i);
    }
    EXPECT_GE(pools.size(), 4000u);
    EXPECT_LT(source.requests(), 100u) << "a block serves many nodes";
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(u.at(i), m.at(i));
    auto moved = std::move(l);
    l.emplace_back(1);  // NOLINT: a moved-from list still has its pools
    l.splice(l.end(), moved);
    EXPECT_EQ(l.size(), 1001u);
    m.clear();
    EXPECT_GT(pools.shrink(), 0u);
  }
  EXPECT_EQ(source.blocks(), 0u);
}

TEST(PoolAllocator, Propagation) {
  node_pools first, second;
  std::list<int, pool_allocator<int>> a(first), b(second);
  a.assign(10, 1);
  b.assign(20, 2);
  a = b;
  EXPECT_EQ(a.get_allocator().resource(), &first);
  a = std::move(b);
  EXPECT_EQ(a.get_allocator().resource(), &second);
  EXPECT_EQ(a.size(), 20u);
  std::list<int, pool_allocator<int>> c(first);
  c.swap(a);
  EXPECT_EQ(c.get_allocator().resource(), &second);
  EXPECT_FALSE(a.get_allocator() == c.get_allocator());
  EXPECT_EQ(pool_allocator<char>(c.get_allocator()), c.get_allocator());
  EXPECT_THROW(static_cast<void>(pool_allocator<int>(first).allocate(SIZE_MAX / 2)),
               std::bad_alloc);
}

#if LOAM_CXX_ASAN
TEST(Pool, AddressSanitizerSeesFreeSlots) {
  pool<std::array<char, 64>> p;
  auto* a = p.construct();
  p.destroy(a);
  EXPECT_TRUE(__asan_address_is_poisoned(a));
  p.shrink();
}
#endif

// Random operations against a model, with a check of every live byte now and then.
TEST(Pool, RandomOperationsAgreeWithAModel) {
  auto random = test::seeded(2);
  LOAM_TRACE_SEED(random);
  for (const size_t bytes : {1u, 24u, 100u, 1000u}) {
    CountingSource source;
    slot_pool p(bytes, 16, source, {.first_slots = 4, .largest_block = 4096});
    std::vector<std::pair<unsigned char*, unsigned char>> live;
    for (int step = 0; step < 20'000; ++step) {
      const uint64_t what = random.below(1000);
      const bool grow = step / 2000 % 2 == 0;
      if (what < (grow ? 700 : 300)) {
        if (random.chance(1)) source.fail_after(0);
        auto* slot = static_cast<unsigned char*>(p.try_allocate());
        source.never_fail();
        if (slot == nullptr) continue;
        ASSERT_EQ(reinterpret_cast<uintptr_t>(slot) % 16, 0u);
        const auto fill = static_cast<unsigned char>(random.next());
        std::memset(slot, fill, bytes);
        live.emplace_back(slot, fill);
      } else if (what < 990 && !live.empty()) {
        std::swap(live[random.below(live.size())], live.back());
        for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(live.back().first[i], live.back().second);
        p.deallocate(live.back().first);
        live.pop_back();
      } else if (what < 997) {
        const uint64_t before = source.bytes();
        const size_t returned = p.shrink();
        ASSERT_EQ(returned, before - source.bytes());
      } else if (random.chance(10)) {
        p.release();
        live.clear();
      }
      ASSERT_EQ(p.size(), live.size());
      ASSERT_EQ(p.bytes(), source.bytes());
      ASSERT_GE(p.capacity(), p.size());
    }
    for (const auto& [slot, fill] : live) {
      for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(slot[i], fill);
    }
  }
}

}  // namespace
}  // namespace loam
