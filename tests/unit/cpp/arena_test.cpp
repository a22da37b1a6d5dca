#include "loam/arena.hpp"

#include <cstring>
#include <list>
#include <map>
#include <memory_resource>
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

TEST(Arena, TakesNoMemoryUntilTheFirstRequestAndGivesAllBack) {
  CountingSource source;
  {
    arena a(source);
    EXPECT_EQ(source.requests(), 0u);
    EXPECT_NE(a.allocate(100), nullptr);
    EXPECT_EQ(source.blocks(), 1u);
    EXPECT_EQ(a.capacity(), source.bytes());
  }
  EXPECT_EQ(source.blocks(), 0u);
}

TEST(Arena, BlocksAreAlignedDisjointAndUniqueForZeroBytes) {
  CountingSource source;
  arena a(source, {.first_block = 256, .largest_block = 4096});
  void* const zero = a.allocate(0);
  EXPECT_NE(zero, a.allocate(0));
  for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
    void* p = a.allocate(3, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u) << alignment;
    std::memset(p, 0xAB, 3);
  }
}

TEST(Arena, BlocksDoubleUpToTheLimitAndLargeRequestsGetTheirOwn) {
  CountingSource source;
  arena a(source, {.first_block = 1024, .largest_block = 8192});
  for (int i = 0; i < 2000; ++i) static_cast<void>(a.allocate(100));
  EXPECT_EQ(source.largest(), 8192u);
  EXPECT_LT(source.requests(), 35u);
  static_cast<void>(a.allocate(100'000));
  EXPECT_GE(source.largest(), 100'000u);
  EXPECT_LT(source.largest(), 100'200u);
}

TEST(Arena, RefusesWhatCannotBeAndStaysGood) {
  CountingSource source;
  arena a(source);
  EXPECT_EQ(a.try_allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(a.try_allocate(SIZE_MAX - 15), nullptr);
  EXPECT_EQ(a.try_allocate(16, size_t{1} << 63), nullptr);
  EXPECT_THROW(static_cast<void>(a.allocate(SIZE_MAX / 2)), std::bad_alloc);
  EXPECT_THROW(static_cast<void>(a.allocate_array<uint64_t>(SIZE_MAX / 4)), std::bad_alloc);
  EXPECT_EQ(source.requests(), 0u);
  source.fail_after(1);
  EXPECT_NE(a.try_allocate(64), nullptr);
  const size_t used = a.used(), capacity = a.capacity();
  EXPECT_EQ(a.try_allocate(1 << 20), nullptr);
  EXPECT_EQ(a.used(), used);
  EXPECT_EQ(a.capacity(), capacity);
  EXPECT_NE(a.try_allocate(64), nullptr) << "what is left of the block still serves";
}

TEST(Arena, MakeDestroysInReverseOrderAtRewindAndReset) {
  static std::vector<int> destroyed;
  destroyed.clear();
  struct Noted {
    explicit Noted(int n) : number(n) {}
    ~Noted() { destroyed.push_back(number); }
    int number;
  };
  arena a;
  a.make<Noted>(1);
  const auto middle = a.mark();
  a.make<Noted>(2);
  a.make<Noted>(3);
  a.make<int>(7);  // needs no destructor
  a.rewind(middle);
  EXPECT_EQ(destroyed, (std::vector<int>{3, 2}));
  {
    const arena_scope scope(a);
    a.make<Noted>(4);
  }
  EXPECT_EQ(destroyed.back(), 4);
  a.reset();
  EXPECT_EQ(destroyed, (std::vector<int>{3, 2, 4, 1}));
}

TEST(Arena, AConstructorThatThrowsRegistersNothing) {
  Tracked::live = 0;
  {
    arena a;
    a.make<Tracked>(1);
    Tracked::throw_at = 0;
    EXPECT_THROW(a.make<Tracked>(2), std::bad_alloc);
    Tracked::throw_at = -1;
    EXPECT_EQ(a.make<Tracked>(3)->value, 3);
    EXPECT_EQ(Tracked::live, 2);
  }
  EXPECT_EQ(Tracked::live, 0);
}

TEST(Arena, ResetKeepsBlocksForTheNextLevel) {
  CountingSource source;
  arena a(source);
  const auto level = [&] {
    for (size_t i = 0; i < 10'000; ++i) static_cast<void>(a.allocate(64 + i % 100));
  };
  level();
  a.reset();
  EXPECT_EQ(a.used(), 0u);
  const uint64_t requests = source.requests();
  for (int i = 0; i < 5; ++i) {
    level();
    a.reset();
  }
  EXPECT_EQ(source.requests(), requests) << "a level like the last needs no new block";
}

TEST(Arena, AnOutlierDoesNotHoldItsMemoryForEver) {
  CountingSource source;
  arena a(source);
  const auto level = [&](size_t bytes) {
    for (size_t i = 0; i < bytes; i += 1000) static_cast<void>(a.allocate(1000));
    a.reset();
  };
  level(100'000);
  level(50'000'000);
  EXPECT_GT(a.capacity(), 50'000'000u) << "kept: the next level may be as large";
  level(100'000);
  EXPECT_GT(a.capacity(), 50'000'000u) << "the larger of the last two";
  level(100'000);
  EXPECT_LT(a.capacity(), 1'000'000u);
  EXPECT_GT(a.trim(), 0u);
  EXPECT_EQ(source.blocks(), 0u);
}

TEST(Arena, TrimKeepsWhatIsInUse) {
  CountingSource source;
  arena a(source, {.first_block = 1024, .largest_block = 1024});
  auto* first = static_cast<char*>(a.allocate(600));
  std::memset(first, 1, 600);
  const auto m = a.mark();
  for (int i = 0; i < 20; ++i) static_cast<void>(a.allocate(600));
  a.rewind(m);
  EXPECT_EQ(a.block_count(), 21u);
  EXPECT_GT(a.trim(4096), 0u);
  EXPECT_LE(a.capacity(), 4096u);
  a.trim();
  EXPECT_EQ(a.block_count(), 1u);
  EXPECT_EQ(first[599], 1);
}

TEST(Arena, ExtendsAndTakesBackOnlyTheNewest) {
  arena a;
  void* p = a.allocate(100);
  void* q = a.allocate(100);
  EXPECT_FALSE(a.try_extend(p, 100, 200));
  EXPECT_TRUE(a.try_extend(q, 100, 200));
  EXPECT_TRUE(a.try_extend(q, 200, 50));
  EXPECT_FALSE(a.try_extend(q, 50, size_t{1} << 40));
  const size_t used = a.used();
  a.deallocate(p, 100);
  EXPECT_EQ(a.used(), used);
  a.deallocate(q, 50);
  EXPECT_LT(a.used(), used);
  EXPECT_EQ(a.allocate(100), q);
}

TEST(Arena, MovesWithItsBlocks) {
  CountingSource source;
  Tracked::live = 0;
  arena a(source);
  auto* object = a.make<Tracked>(5);
  arena b(std::move(a));
  EXPECT_EQ(object->value, 5);
  EXPECT_EQ(a.capacity(), 0u);  // NOLINT: the moved-from state is promised
  EXPECT_NE(a.allocate(10), nullptr);
  arena c(source);
  c.make<Tracked>(6);
  c = std::move(b);
  EXPECT_EQ(Tracked::live, 1);
  EXPECT_EQ(object->value, 5);
  swap(a, c);
  c.release();
  EXPECT_EQ(Tracked::live, 1);
  a.release();
  EXPECT_EQ(Tracked::live, 0);
}

#if LOAM_CXX_ASAN
TEST(Arena, AddressSanitizerSeesWhatIsNobodys) {
  arena a;
  auto* p = static_cast<char*>(a.allocate(32));
  EXPECT_FALSE(__asan_address_is_poisoned(p + 31));
  EXPECT_TRUE(__asan_address_is_poisoned(p + 32));
  a.reset();
  EXPECT_TRUE(__asan_address_is_poisoned(p));
}
#endif

TEST(ArenaAllocator, StandardContainersLiveInAnArena) {
  arena a;
  {
    std::vector<int, arena_allocator<int>> v(a);
    for (int i = 0; i < 1000; ++i) v.push_back(i);
    std::map<int, int, std::less<>, arena_allocator<std::pair<const int, int>>> m(a);
    for (const int i : v) m[i % 97] += i;
    EXPECT_EQ(m.size(), 97u);
    using String = std::basic_string<char, std::char_traits<char>, arena_allocator<char>>;
    String s("a string that is too long for its own body", a);
    s += s;
    EXPECT_EQ(s.size(), 84u);
    auto copy = v;
    EXPECT_EQ(copy.get_allocator(), v.get_allocator());
    auto moved = std::move(v);
    EXPECT_EQ(moved, copy);
    v.push_back(3);  // NOLINT: a moved-from vector still has its arena
    EXPECT_EQ(v.back(), 3);
  }
  arena b;
  std::vector<int, arena_allocator<int>> v(a), w(b);
  v.assign(100, 1);
  w.assign(50, 2);
  v.swap(w);  // the allocators move with the contents
  EXPECT_EQ(v.get_allocator().resource(), &b);
  v = w;  // and do not move
  EXPECT_EQ(v.get_allocator().resource(), &b);
  v = std::move(w);
  EXPECT_EQ(v.get_allocator().resource(), &a);
}

TEST(ArenaAllocator, OverAlignedTypes) {
  struct alignas(256) Wide {
    char bytes[256];
  };
  arena a;
  std::list<Wide, arena_allocator<Wide>> l(a);
  for (int i = 0; i < 10; ++i) {
    l.emplace_back();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(&l.back()) % 256, 0u);
  }
}

TEST(ArenaResource, PmrContainersAndTheMonotonicContract) {
  CountingSource source;
  arena a(source);
  arena_resource resource(a), other(a);
  {
    std::pmr::unordered_map<int, std::pmr::string> m(&resource);
    for (int i = 0; i < 500; ++i) {
      m.emplace(i, "a string that is too long for its own body");
    }
    EXPECT_EQ(m.at(499).get_allocator().resource(), &resource);
  }
  EXPECT_TRUE(resource.is_equal(resource));
  EXPECT_FALSE(resource.is_equal(other));
  EXPECT_GT(a.used(), 0u);
  a.reset();
  EXPECT_EQ(a.used(), 0u);
}

TEST(BlockSource, AMemoryResourceServesAndItsExceptionsAreNoMemory) {
  struct Refusing : std::pmr::memory_resource {
    void* do_allocate(size_t bytes, size_t alignment) override {
      if (refuse) throw std::bad_alloc();
      return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    }
    void do_deallocate(void* p, size_t bytes, size_t alignment) override {
      std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
    }
    bool do_is_equal(const memory_resource& other) const noexcept override {
      return this == &other;
    }
    bool refuse = false;
  } resource, other;
  EXPECT_EQ(block_source(resource), block_source(resource));
  EXPECT_FALSE(block_source(resource) == block_source(other));
  EXPECT_FALSE(block_source(resource) == block_source());
  EXPECT_EQ(block_source(), block_source());
  arena a{block_source(resource)};
  EXPECT_NE(a.try_allocate(10), nullptr);
  resource.refuse = true;
  EXPECT_EQ(a.try_allocate(1 << 20), nullptr);
  EXPECT_THROW(static_cast<void>(a.allocate(1 << 20)), std::bad_alloc);
}

// Random operations against a model: live blocks keep their bytes, whatever is marked and rewound.
TEST(Arena, RandomOperationsAgreeWithAModel) {
  auto random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  struct Piece {
    unsigned char* at;
    size_t bytes;
    unsigned char fill;
  };
  CountingSource source;
  arena a(source, {.first_block = 128, .largest_block = 4096});
  std::vector<Piece> live;
  struct Level {
    arena::marker mark;
    size_t pieces;
    int objects;
  };
  std::vector<Level> levels;
  Tracked::live = 0;
  int objects = 0;
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t what = random.below(100);
    if (what < 70) {
      const size_t bytes = random.magnitude(3000), alignment = size_t{1} << random.below(9);
      if (random.chance(2)) source.fail_after(0);
      auto* p = static_cast<unsigned char*>(a.try_allocate(bytes, alignment));
      source.never_fail();
      if (p == nullptr) continue;
      ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % alignment, 0u);
      const auto fill = static_cast<unsigned char>(random.next());
      std::memset(p, fill, bytes);
      live.push_back({p, bytes, fill});
    } else if (what < 80) {
      a.make<Tracked>(step);
      ++objects;
    } else if (what < 88) {
      levels.push_back({a.mark(), live.size(), objects});
    } else if (what < 94 && !levels.empty()) {
      a.rewind(levels.back().mark);
      live.resize(levels.back().pieces);
      objects = levels.back().objects;
      levels.pop_back();
    } else if (what < 96 && !live.empty()) {
      Piece& last = live.back();
      const size_t bytes = random.magnitude(3000);
      if (levels.empty() || levels.back().pieces < live.size()) {
        if (a.try_extend(last.at, last.bytes, bytes)) {
          last.bytes = bytes;
          std::memset(last.at, last.fill, bytes);
        }
      }
    } else if (what < 98) {
      a.trim(random.below(20'000));
    } else if (random.chance(10)) {
      a.reset();
      live.clear();
      levels.clear();
      objects = 0;
    }
    ASSERT_EQ(Tracked::live, objects);
    ASSERT_EQ(a.capacity(), source.bytes());
    ASSERT_EQ(a.block_count(), source.blocks());
    if (step % 256 == 0) {
      for (const Piece& p : live) {
        for (size_t i = 0; i < p.bytes; ++i) ASSERT_EQ(p.at[i], p.fill);
      }
    }
  }
  a.release();
  EXPECT_EQ(Tracked::live, 0);
}

}  // namespace
}  // namespace loam
