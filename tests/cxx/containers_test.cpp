// Standard containers on loam::allocator and loam::memory_resource, in every state that the
// standard allows.
#include <deque>
#include <forward_list>
#include <list>
#include <map>
#include <memory_resource>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "loam/allocator.hpp"
#include "loam/memory_resource.hpp"

namespace loam {
namespace {

// An element that owns memory of its own and may throw when it is copied.
struct Item {
  static inline int live = 0, throw_at = -1;
  Item(int v = 0) : value(v), text(60, 'x') { ++live; }  // NOLINT: converts on purpose
  Item(const Item& o) : value(o.value), text(o.text) {
    if (throw_at >= 0 && throw_at-- == 0) throw std::runtime_error("copy");
    ++live;
  }
  Item(Item&& o) noexcept : value(o.value), text(std::move(o.text)) { ++live; }
  Item& operator=(const Item&) = default;
  Item& operator=(Item&&) = default;
  ~Item() { --live; }
  bool operator==(const Item& o) const { return value == o.value; }
  bool operator<(const Item& o) const { return value < o.value; }
  int value;
  std::string text;
};

template <typename C>
C filled(const heap_ref& h, int count, int from = 0) {
  C c{typename C::allocator_type(h)};
  for (int i = 0; i < count; ++i) {
    if constexpr (requires { typename C::mapped_type; }) {
      c.emplace(from + i, Item(from + i));
    } else if constexpr (requires { typename C::key_type; }) {
      c.insert(Item(from + i));
    } else {
      c.insert(c.end(), Item(from + i));
    }
  }
  return c;
}

template <typename C>
class Containers : public testing::Test {
 protected:
  void SetUp() override { Item::live = 0; }
  void TearDown() override { EXPECT_EQ(Item::live, 0); }
};

using Pair = std::pair<const int, Item>;
using Kinds =
    testing::Types<std::vector<Item, allocator<Item>>, std::deque<Item, allocator<Item>>,
                   std::list<Item, allocator<Item>>,
                   std::map<int, Item, std::less<>, allocator<Pair>>,
                   std::set<Item, std::less<>, allocator<Item>>,
                   std::unordered_map<int, Item, std::hash<int>, std::equal_to<>, allocator<Pair>>>;
TYPED_TEST_SUITE(Containers, Kinds);

TYPED_TEST(Containers, LiveInTheirHeap) {
  heap h;
  {
    auto c = filled<TypeParam>(h, 200);
    EXPECT_EQ(c.size(), 200u);
    EXPECT_GE(h.summary().allocated, 200 * sizeof(Item));
    EXPECT_EQ(c.get_allocator().heap(), h);
  }
  EXPECT_EQ(h.summary().blocks, 0u) << "everything came back";
}

TYPED_TEST(Containers, MoveSwapAndAssignBetweenHeaps) {
  heap first, second;
  {
    auto a = filled<TypeParam>(first, 100), b = filled<TypeParam>(second, 50, 1000);
    const auto a0 = a, b0 = b;
    // Swap: the allocators move too.
    a.swap(b);
    EXPECT_EQ(a, b0);
    EXPECT_EQ(a.get_allocator().heap(), second);
    EXPECT_EQ(b.get_allocator().heap(), first);
    // Copy assignment: the allocator stays.
    a = a0;
    EXPECT_EQ(a, a0);
    EXPECT_EQ(a.get_allocator().heap(), second);
    // Move assignment: the allocator moves too, and the source can be used again.
    a = std::move(b);
    EXPECT_EQ(a, a0);
    EXPECT_EQ(a.get_allocator().heap(), first);
    b.clear();
    EXPECT_EQ(b.size(), 0u);
    b = b0;
    EXPECT_EQ(b, b0);
    // Move construction, and with an allocator of another heap (element by element).
    TypeParam c(std::move(a));
    EXPECT_EQ(c, a0);
    TypeParam d(std::move(c), typename TypeParam::allocator_type(second));
    EXPECT_EQ(d, a0);
    EXPECT_EQ(d.get_allocator().heap(), second);
    TypeParam e(d, typename TypeParam::allocator_type(first));
    EXPECT_EQ(e, d);
    a = filled<TypeParam>(second, 3);
    EXPECT_EQ(a.size(), 3u);
  }
  EXPECT_EQ(first.summary().blocks, 0u);
  EXPECT_EQ(second.summary().blocks, 0u);
}

TYPED_TEST(Containers, AreWholeAfterAnException) {
  heap h;
  {
    auto a = filled<TypeParam>(h, 100);
    for (const int at : {0, 1, 50, 99}) {
      Item::throw_at = at;
      EXPECT_THROW(TypeParam(a, a.get_allocator()), std::runtime_error);
      Item::throw_at = -1;
      EXPECT_EQ(a.size(), 100u);
    }
    const auto blocks = h.summary().blocks;
    EXPECT_EQ(static_cast<size_t>(Item::live), a.size());
    TypeParam b(a, a.get_allocator());
    EXPECT_EQ(a, b);
    EXPECT_GT(h.summary().blocks, blocks);
  }
  EXPECT_EQ(h.summary().blocks, 0u);
}

TYPED_TEST(Containers, AFullHeapIsAnExceptionAndNothingIsLost) {
  heap h({.maximum = 256 << 10});
  auto c = filled<TypeParam>(h, 10);
  const auto before = c;
  EXPECT_THROW(
      {
        for (int i = 1000; i < 1'000'000; ++i) {
          if constexpr (requires { typename TypeParam::mapped_type; }) {
            c.emplace(i, Item(i));
          } else {
            c.insert(c.end(), Item(i));
          }
        }
      },
      std::bad_alloc);
  EXPECT_GT(c.size(), 10u);
  EXPECT_EQ(h.validate(), LOAM_OK);
  c.clear();
  c = before;
  EXPECT_EQ(c, before);
}

TEST(Allocator, TraitsAndEquality) {
  heap h, other;
  allocator<int> a(h);
  const allocator<double> b(a);
  EXPECT_TRUE(a == b);
  EXPECT_FALSE(a == allocator<int>(other));
  EXPECT_EQ(allocator<int>().heap(), default_heap());
  using traits = std::allocator_traits<allocator<int>>;
  static_assert(traits::propagate_on_container_swap::value);
  static_assert(traits::propagate_on_container_move_assignment::value);
  static_assert(!traits::propagate_on_container_copy_assignment::value);
  static_assert(!traits::is_always_equal::value);
  static_assert(std::is_same_v<traits::rebind_alloc<char>, allocator<char>>);
  static_assert(std::is_nothrow_copy_constructible_v<allocator<int>>);
  EXPECT_EQ(traits::select_on_container_copy_construction(a), a);
  EXPECT_THROW(static_cast<void>(a.allocate(SIZE_MAX / 2)), std::bad_array_new_length);
  const auto room = a.allocate_at_least(33);
  EXPECT_GE(room.count, 33u);
  room.ptr[room.count - 1] = 1;
  a.deallocate(room.ptr, 34);
  int* none = a.allocate(0);
  a.deallocate(none, 0);
  EXPECT_EQ(h.summary().blocks, 0u);
}

TEST(Allocator, StringsAndBoolsAndSharedPointers) {
  heap h;
  {
    using String = std::basic_string<char, std::char_traits<char>, allocator<char>>;
    String s(h), t(h);
    for (int i = 0; i < 1000; ++i) s += "word ";
    t = s.substr(10, 2000);
    EXPECT_EQ(t.size(), 2000u);
    std::vector<bool, allocator<bool>> bits(1000, true, allocator<bool>(h));
    bits.flip();
    EXPECT_FALSE(bits[999]);
    const auto shared = std::allocate_shared<Item>(allocator<Item>(h), 5);
    EXPECT_EQ(shared->value, 5);
    std::forward_list<int, allocator<int>> l({1, 2, 3}, allocator<int>(h));
    EXPECT_EQ(std::accumulate(l.begin(), l.end(), 0), 6);
  }
  EXPECT_EQ(h.summary().blocks, 0u);
}

TEST(Allocator, OverAlignedElementsCostNoMoreThanTheirClass) {
  struct alignas(1024) Wide {
    char bytes[1024];
  };
  heap h;
  {
    std::vector<Wide, allocator<Wide>> v(h);
    std::list<Wide, allocator<Wide>> l(h);
    for (int i = 0; i < 100; ++i) {
      v.emplace_back();
      l.emplace_back();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(&v.back()) % 1024, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(&l.back()) % 1024, 0u);
    }
  }
  EXPECT_EQ(h.summary().blocks, 0u);
}

TEST(Allocator, ContainersOfOneHeapInManyThreads) {
  heap h;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::map<int, int, std::less<>, allocator<std::pair<const int, int>>> m(h);
      for (int i = 0; i < 20'000; ++i) {
        m[i % 1000] += t;
        if (i % 3 == 0) m.erase(i * 7 % 1000);
      }
    });
  }
  for (auto& t : threads) t.join();
  h.compact();
  EXPECT_EQ(h.summary().blocks, 0u);
  EXPECT_EQ(h.validate(), LOAM_OK);
}

TEST(MemoryResource, PmrContainers) {
  heap h, other_heap;
  {
    memory_resource mine(h), same(h), other(other_heap);
    EXPECT_TRUE(mine.is_equal(same));
    EXPECT_FALSE(mine.is_equal(other));
    EXPECT_FALSE(mine.is_equal(*std::pmr::new_delete_resource()));
    std::pmr::vector<std::pmr::string> v(&mine);
    v.assign(100, "a string that is too long for its own body");
    std::pmr::unordered_map<int, std::pmr::list<int>> m(&mine);
    for (int i = 0; i < 500; ++i) m[i % 50].push_back(i);
    EXPECT_EQ(m.at(7).get_allocator().resource(), &mine);
    std::pmr::vector<std::pmr::string> w(&other);
    w = std::move(v);  // pmr allocators stay where they are: element by element
    EXPECT_EQ(w[99].get_allocator().resource(), &other);
    EXPECT_EQ(w.size(), 100u);
    std::pmr::unsynchronized_pool_resource pools(&mine);
    std::pmr::list<int> l(1000, 1, &pools);
    EXPECT_EQ(l.size(), 1000u);
    void* wide = mine.allocate(100, 4096);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(wide) % 4096, 0u);
    mine.deallocate(wide, 100, 4096);
    heap full({.maximum = 64 << 10});
    memory_resource small(full);
    EXPECT_THROW(static_cast<void>(small.allocate(1 << 20)), std::bad_alloc);
    EXPECT_EQ(memory_resource().heap(), default_heap());
  }
  EXPECT_EQ(h.summary().blocks, 0u);
  EXPECT_EQ(other_heap.summary().blocks, 0u);
}

}  // namespace
}  // namespace loam
