#include "loam/heap.hpp"

#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "loam/arena.hpp"
#include "loam/buffer_cache.hpp"
#include "loam/concurrent_functor_queue.hpp"
#include "loam/pool.hpp"

namespace loam {
namespace {

size_t live_blocks(const heap_ref& h) { return h.summary().blocks; }

TEST(Heap, AllocatesResizesAndFrees) {
  heap h({.exact_sizes = true, .name = "mine"});
  EXPECT_STREQ(h.name(), "mine");
  EXPECT_EQ(h.flags(), unsigned{LOAM_HEAP_EXACT_SIZES});
  auto* p = static_cast<char*>(h.allocate(100));
  std::memset(p, 7, 100);
  EXPECT_TRUE(h.owns(p));
  EXPECT_FALSE(h.owns(p + 1));
  EXPECT_EQ(heap_of(p), h);
  EXPECT_EQ(h.size(p), 100u);
  EXPECT_GE(h.usable_size(p), 100u);
  EXPECT_TRUE(h.try_resize(p, 99));
  p = static_cast<char*>(h.reallocate(p, 5000));
  EXPECT_EQ(p[98], 7);
  auto* z = static_cast<char*>(h.allocate_zeroed(300));
  for (int i = 0; i < 300; ++i) ASSERT_EQ(z[i], 0);
  void* wide = h.allocate(10, std::align_val_t{4096});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(wide) % 4096, 0u);
  EXPECT_EQ(live_blocks(h), 3u);
  EXPECT_EQ(h.deallocate(p), LOAM_OK);
  EXPECT_EQ(h.deallocate(p), LOAM_INVALID_BLOCK);
  EXPECT_EQ(h.deallocate(z, 300), LOAM_OK);
  EXPECT_EQ(h.deallocate(wide), LOAM_OK);
  EXPECT_EQ(h.deallocate(nullptr), LOAM_OK);
  EXPECT_EQ(h.validate(), LOAM_OK);
}

TEST(Heap, SaysWhatItRefuses) {
  heap h({.maximum = 1 << 20}), other;
  EXPECT_THROW(static_cast<void>(h.allocate(8 << 20)), std::bad_alloc);
  volatile size_t too_much = SIZE_MAX;  // the compiler would warn of exactly what the test does
  EXPECT_THROW(static_cast<void>(h.allocate(too_much)), std::bad_alloc);
  EXPECT_EQ(h.try_allocate(8 << 20), nullptr);
  EXPECT_EQ(loam_last_status(), LOAM_LIMIT_REACHED);
  EXPECT_THROW(static_cast<void>(h.allocate(8, std::align_val_t{24})), heap_error);
  void* p = other.allocate(10);
  try {
    static_cast<void>(h.reallocate(p, 20));
    FAIL() << "another heap's block was resized";
  } catch (const heap_error& e) {
    EXPECT_EQ(e.status(), LOAM_WRONG_HEAP);
    EXPECT_STREQ(e.what(), loam_status_text(LOAM_WRONG_HEAP));
  }
  EXPECT_TRUE(other.owns(p));
  EXPECT_EQ(h.size(p), SIZE_MAX);
  EXPECT_THROW(heap({.initial = 4 << 20, .maximum = 1 << 20}), std::bad_alloc);
  EXPECT_FALSE(heap::try_create({.initial = 4 << 20, .maximum = 1 << 20}).has_value());
  EXPECT_TRUE(heap::try_create().has_value());
}

TEST(Heap, TheFailureCallbackMayThrow) {
  struct Full : std::runtime_error {
    Full() : std::runtime_error("full") {}
  };
  int asked = 0;
  heap h({.maximum = 1 << 20,
          .on_failure = [](void* context, loam_heap*, size_t) -> int {
            if (++*static_cast<int*>(context) == 2) throw Full();
            return 0;
          },
          .context = &asked});
  EXPECT_THROW(static_cast<void>(h.allocate(8 << 20)), std::bad_alloc);
  EXPECT_THROW(static_cast<void>(h.allocate(8 << 20)), Full);
  EXPECT_EQ(asked, 2);
  asked = 1;
  EXPECT_EQ(h.source().allocate(8 << 20), nullptr) << "a block source never throws";
  EXPECT_NE(h.allocate(100), nullptr);
}

TEST(Heap, MovesItsHandle) {
  const size_t before = heaps().size();
  heap a;
  EXPECT_EQ(heaps().size(), before + 1);
  void* p = a.allocate(50);
  heap b(std::move(a));
  EXPECT_FALSE(a);  // NOLINT: the moved-from state is promised
  EXPECT_TRUE(b.owns(p));
  heap c;
  c = std::move(b);
  EXPECT_EQ(heaps().size(), before + 1);
  EXPECT_TRUE(c.owns(p));
  swap(a, c);
  EXPECT_TRUE(a.owns(p));
  EXPECT_THROW(static_cast<void>(c.allocate(1)), heap_error);
  EXPECT_EQ(c.summary().committed, 0u);
  EXPECT_STREQ(c.name(), "");
  loam_heap* handle = a.release();
  EXPECT_EQ(heaps().size(), before + 1);
  heap(handle).destroy();
  EXPECT_EQ(heaps().size(), before);
}

TEST(Heap, WalksAsARange) {
  heap h({.exact_sizes = true});
  std::set<void*> expected;
  for (const size_t n : {1u, 17u, 100u, 456u, 5000u, 100'000u}) expected.insert(h.allocate(n));
  h.deallocate(h.allocate(33));
  std::set<void*> found;
  size_t bytes = 0;
  {
    const std::lock_guard lock(h);
    heap_iterator i = h.begin();
    for (; i != h.end(); ++i) {
      if (i->kind >= LOAM_ENTRY_SMALL) found.insert(i->address);
    }
    EXPECT_EQ(i.status(), LOAM_NO_MORE);
  }
  EXPECT_EQ(found, expected);
  h.for_each_block([&](const heap_entry& e) { bytes += e.bytes; });
  EXPECT_EQ(bytes, 1u + 17 + 100 + 456 + 5000 + 100'000);
  EXPECT_THROW(h.for_each_block([](const heap_entry&) { throw 1; }), int);
  EXPECT_EQ(loam_unlock(h.get()), LOAM_NOT_OWNER) << "the lock was let go";
}

TEST(Heap, IsLockable) {
  heap h;
  std::unique_lock lock(h);
  std::thread([&] { EXPECT_FALSE(h.try_lock()); }).join();
  h.lock();  // recursive
  h.unlock();
  lock.unlock();
  std::thread([&] {
    EXPECT_TRUE(h.try_lock());
    h.unlock();
  }).join();
}

TEST(Heap, SummaryCompactModeAndThreshold) {
  heap h;
  std::vector<void*> blocks;
  for (int i = 0; i < 10'000; ++i) blocks.push_back(h.allocate(200));
  EXPECT_EQ(h.summary().blocks, 10'000u);
  EXPECT_GE(h.summary().committed, 2'000'000u);
  EXPECT_EQ(h.mode(), heap_mode::low_fragmentation) << "it turned the front end on by itself";
  EXPECT_EQ(h.set_mode(heap_mode::standard), LOAM_ONE_WAY);
  for (void* p : blocks) h.deallocate(p);
  h.compact();
  EXPECT_EQ(h.summary().blocks, 0u);
  EXPECT_LT(h.summary().committed, 1'000'000u);
  EXPECT_EQ(h.set_small_threshold(0), LOAM_OK);
  EXPECT_EQ(h.small_threshold(), 0u);
  h.trim();
  trim_all();
}

TEST(Heap, Counts) {
  heap h;
  const uint64_t process = process_stats().live_blocks;
  void* p = h.allocate(1000);
  void* q = h.allocate(100'000);
  EXPECT_EQ(h.stats().live_blocks, 2u);
  EXPECT_EQ(h.stats().live_large_blocks, 1u);
  EXPECT_GE(h.stats().live_bytes, 101'000u);
  EXPECT_EQ(process_stats().live_blocks, process + 2);
  h.deallocate(p);
  h.deallocate(q);
  EXPECT_EQ(h.stats().live_blocks, 0u);
  EXPECT_EQ(heap(nullptr).stats().live_blocks, 0u);
}

TEST(Heap, TheDefaultHeapIsMallocs) {
  void* p = std::malloc(100);
  EXPECT_EQ(heap_of(p), default_heap());
  EXPECT_TRUE(heap_ref().owns(p));
  EXPECT_FALSE(heap_of(&p));
  std::free(p);
  EXPECT_STREQ(default_heap().name(), "default");
  EXPECT_EQ(heaps().front(), default_heap());
}

TEST(Heap, FeedsTheBuildingBlocks) {
  heap h;
  {
    arena a(h);
    EXPECT_TRUE(h.owns(static_cast<char*>(a.allocate(10)) - 16))
        << "the arena's block is the heap's";
    pool<int> p(h);
    static_cast<void>(p.construct(1));
    buffer_cache cache(bucketed(), h.source());
    const buffer b = cache.get(1000);
    EXPECT_TRUE(h.owns(b.data));
    cache.give_back(b);
    concurrent_functor_queue<> q(h.source());
    q.push([] {});
    EXPECT_GE(live_blocks(h), 5u);
    EXPECT_EQ(block_source(h), h.source());
    EXPECT_FALSE(h.source() == default_heap().source());
  }
  EXPECT_EQ(live_blocks(h), 0u);
  arena a(h, {.first_block = 4096, .largest_block = 1 << 16});
  for (int i = 0; i < 10'000; ++i) static_cast<void>(a.allocate(100, 64));
}

}  // namespace
}  // namespace loam
