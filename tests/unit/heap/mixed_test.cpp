// Phase changes on the real system: a program frees nine blocks in ten and continues with other
// sizes, so that its next blocks are cut from mixed spans. No caller may notice the difference.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cache/cache_registry.h"
#include "heap/blocks.h"
#include "heap/equations.h"
#include "heap/heap.h"
#include "os/fatal.h"
#include "this_process.h"

namespace loam {
namespace {

using test::Blocks;
using test::expect_equations;
using test::Random;
using test::snapshot;
using test::totals;

// With ThreadSanitizer every byte that a test fills or compares is expensive.
#if LOAM_THREAD_SANITIZER
constexpr size_t kLive = size_t{1} << 20;
#else
constexpr size_t kLive = size_t{2} << 20;
#endif

bool is_guest(const void* block) { return class_at(block) == kMixedClass; }

class MixedSpans : public testing::Test {
 protected:
  static void SetUpTestSuite() { test::start_once(); }
  void TearDown() override {
    blocks.free_all();
    EXPECT_TRUE(heap::is_valid());
    heap::compact();
    EXPECT_TRUE(heap::is_valid());
    const auto s = snapshot();
    expect_equations(*s);
    EXPECT_EQ(s->used_bytes, 0u);
    EXPECT_EQ(s->mixed_spans, 0u);
    EXPECT_EQ(s->mixed_span_bytes, 0u);
  }

  void fill(size_t low, size_t high, size_t up_to = kLive) {
    while (live < up_to) add(low + random.below(high - low + 1));
  }
  void add(size_t bytes) {
    blocks.add(heap::allocate(bytes), bytes);
    live += bytes;
  }
  void free(void* block) {
    live -= blocks.bytes(block);
    blocks.free(block);
  }
  void thin() {
    for (size_t keep = blocks.size() / 10; blocks.size() > keep;) free(blocks.random(random));
  }
  /// Blocks of 64 bytes that are cut from mixed spans: most of `count`.
  void make_guests() {
    fill(200, 240);
    thin();
    fill(50, 64, kLive / 2);
    ASSERT_GT(snapshot()->mixed_spans, 0u);
  }
  std::vector<void*> guests() {
    std::vector<void*> all = blocks.all();
    all.erase(std::remove_if(all.begin(), all.end(), [](void* p) { return !is_guest(p); }),
              all.end());
    return all;
  }

  Random random = test::seeded(1);
  Blocks blocks;
  size_t live = 0;
};

TEST_F(MixedSpans, PhasesOfManySizesKeepContentsAndEquations) {
  LOAM_TRACE_SEED(random);
  constexpr size_t kRanges[][2] = {{24, 40},  {104, 152},  {56, 72},     {200, 264},   {360, 488},
                                   {1, 1024}, {600, 1024}, {1000, 8192}, {3000, 5000}, {16, 3000}};
  uint64_t conversions = snapshot()->mixed_conversions;
  for (const auto& [low, high] : kRanges) {
    fill(low, high);
    size_t small = 0;
    for (void* block : blocks.all()) small += heap::usable_size(block);
    const auto s = snapshot();
    expect_equations(*s);
    EXPECT_EQ(s->live_small_bytes, small);
    EXPECT_TRUE(heap::is_valid());
    thin();
    expect_equations(*snapshot());
    if (random.chance(50)) {
      heap::compact();
      expect_equations(*snapshot());
    }
    EXPECT_TRUE(heap::is_valid());
    for (void* block : blocks.all()) blocks.check(block);
    ASSERT_FALSE(HasFailure()) << low << " to " << high << " bytes";
  }
  EXPECT_GT(snapshot()->mixed_conversions, conversions + 10);
}

TEST_F(MixedSpans, GuestsTellTheirSizeAndAreResized) {
  LOAM_TRACE_SEED(random);
  make_guests();
  unsigned seen = 0;
  for (void* block : guests()) {
    const size_t bytes = blocks.bytes(block);
    const unsigned char fill = blocks.fill(block);
    ASSERT_EQ(heap::usable_size(block), kSizeClasses[class_for(bytes)].bytes);
    ASSERT_EQ(heap::usable_size(static_cast<char*>(block) + 16) % 16, 0u) << "no crash";
    EXPECT_TRUE(heap::try_resize(block, heap::usable_size(block)));
    EXPECT_FALSE(heap::try_resize(block, heap::usable_size(block) + 1));
    blocks.forget(block);
    live -= bytes;
    const size_t wanted = 1 + random.below(random.chance(90) ? 1500 : 100'000);
    void* moved = heap::reallocate(block, wanted);
    ASSERT_NE(moved, nullptr);
    ASSERT_TRUE(Blocks::marked(moved, std::min(bytes, wanted), fill));
    blocks.add(moved, wanted);
    live += wanted;
    ++seen;
  }
  EXPECT_GT(seen, 1000u);
  expect_equations(*snapshot());
}

TEST_F(MixedSpans, WhatAThreadFreesItAllocatesAgainWithoutACut) {
  LOAM_TRACE_SEED(random);
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "one thread, slowed down until the clock decides what lies free";
#endif
  // With AddressSanitizer tenths of a second become seconds, and pages of slots that were unused
  // for one second are purged meanwhile.
#if defined(__SANITIZE_ADDRESS__)
  constexpr int kLess = 8;
#else
  constexpr int kLess = 1;
#endif
  fill(200, 240, 4 * kLive / kLess);
  thin();
  fill(56, 500, 2 * kLive / kLess);
  const auto churn = [&](int times) {
    for (int i = 0; i < times; ++i) {
      free(blocks.random(random));
      add(56 + random.below(445));
    }
  };
  churn(20'000 / kLess);
  const auto cuts = [] { return default_small_heap.mixed().stats().taken; };
  const uint64_t before = cuts();
  constexpr int kTimes = 40'000 / kLess;
  churn(kTimes);
  const double share = double(guests().size()) / double(blocks.size());
  ASSERT_GT(share, 0.2) << "the test should meet blocks cut from mixed spans";
  EXPECT_LT(cuts() - before, kTimes * share / 3) << "one in three that are freed may be cut again";
  expect_equations(*snapshot());
}

TEST_F(MixedSpans, WhatAThreadOnlyFreesGoesHome) {
  LOAM_TRACE_SEED(random);
  make_guests();
  const std::vector<void*> handed = guests();
  ASSERT_GT(handed.size(), 2000u);
  const uint64_t before = default_small_heap.mixed().stats().given;
  std::thread([&] {
    for (void* block : handed) heap::free(block);
    const size_t held = current_cache->held_blocks(kMixedClass);
    EXPECT_GT(held, 0u);
    EXPECT_LE(held, std::max(size_t{64}, (page_heap.hints().used_bytes() >> 10) / 512));
    for (unsigned c = 1; c < kMixedClass; ++c)
      EXPECT_EQ(current_cache->held_blocks(c), 0u) << "class " << c;
    EXPECT_EQ(default_small_heap.mixed().stats().given - before, handed.size() - held);
  }).join();
  for (void* block : handed) {
    live -= blocks.bytes(block);
    blocks.forget(block);
  }
}

TEST_F(MixedSpans, AlignedAndZeroedBlocksKeepTheirPromises) {
  LOAM_TRACE_SEED(random);
  make_guests();
  fill(8, 1024, kLive * 3 / 4);
  unsigned guest_blocks = 0;
  for (int i = 0; i < 10'000; ++i) {
    const size_t alignment = size_t{16} << random.below(7);  // to 1024
    const size_t bytes = 1 + random.below(1024);
    void* block =
        random.chance(30) ? heap::allocate_zeroed(bytes) : heap::allocate_aligned(alignment, bytes);
    ASSERT_NE(block, nullptr);
    if (random.chance(50)) {
      // The next blocks find the bytes that a free leaves behind.
      memset(block, 0xee, bytes);
      heap::free(block);
      block = heap::allocate_zeroed(bytes);
      for (size_t k = 0; k < bytes; ++k)
        ASSERT_EQ(static_cast<char*>(block)[k], 0) << bytes << " bytes";
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0u);
    } else {
      heap::free(block);
      block = heap::allocate_aligned(alignment, bytes);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << bytes << " bytes";
    }
    guest_blocks += is_guest(block);
    blocks.add(block, bytes);
    live += bytes;
    free(blocks.random(random));
  }
  EXPECT_GT(guest_blocks, 100u) << "the test should meet blocks cut from mixed spans";
  expect_equations(*snapshot());
}

TEST_F(MixedSpans, AlignedBlocksOfAMagazineFullOfGuestsAreAligned) {
  LOAM_TRACE_SEED(random);
  make_guests();
  // The magazines of these classes were just filled from mixed spans, at multiples of 16.
  for (const size_t alignment : {32, 64, 128, 256, 512, 1024}) {
    for (int i = 0; i < 300; ++i) {
      add(alignment);
      void* block = heap::allocate_aligned(alignment, alignment);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << alignment;
      blocks.add(block, alignment);
      live += alignment;
    }
  }
  expect_equations(*snapshot());
}

TEST_F(MixedSpans, MisusesOfGuestsAreReported) {
  LOAM_TRACE_SEED(random);
  make_guests();
  cache_registry.flush_current();
  char* block = static_cast<char*>(guests().back());
  const size_t usable = heap::usable_size(block);
  ASSERT_GE(usable, 32u);
  const auto report_of = [](auto body) {
    set_corruption_policy(CorruptionPolicy::kReport);
    testing::internal::CaptureStderr();
    body();
    cache_registry.flush_current();
    set_corruption_policy(CorruptionPolicy::kAbort);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(report_of([&] { heap::free(block + 16); }).find("middle of a block"),
            std::string::npos);
  EXPECT_NE(report_of([&] { heap::free(block + 1); }).find("no block"), std::string::npos);
  EXPECT_NE(report_of([&] { static_cast<void>(heap::reallocate(block + 16, 10)); }).find("realloc"),
            std::string::npos);
  blocks.check(block);
  live -= blocks.bytes(block);
  blocks.forget(block);
  heap::free(block);
  EXPECT_NE(report_of([&] { heap::free(block); }).find("double free"), std::string::npos);
  // If the frees are far apart, it is found when the block goes home.
  EXPECT_NE(report_of([&] { heap::free(block); }).find("free"), std::string::npos);
  EXPECT_NE(report_of([&] { static_cast<void>(heap::reallocate(block, 10)); }).find("realloc"),
            std::string::npos);
  expect_equations(*snapshot());
}

TEST_F(MixedSpans, AChildOfForkGoesOnWithThem) {
  if (!test::kCanFork) GTEST_SKIP() << "there is no fork()";
  LOAM_TRACE_SEED(random);
  make_guests();
  std::atomic<bool> stop{false}, ready{false};
  std::thread other([&] {
    // The child adopts this thread's cache, which has blocks of mixed spans.
    std::vector<void*> mine;
    for (int i = 0; i < 100; ++i) mine.push_back(heap::allocate(64));
    for (void* block : mine) heap::free(block);
    ready = true;
    while (!stop) std::this_thread::yield();
  });
  while (!ready) std::this_thread::yield();
  const auto child = test::fork();
  if (child == 0) {
    test::alarm(60);
    for (void* block : blocks.all()) {
      if (!Blocks::marked(block, blocks.bytes(block), blocks.fill(block))) _exit(1);
      heap::free(block);
    }
    if (!heap::is_valid()) _exit(2);
    heap::compact();
    const Snapshot s = totals();
    _exit(s.used_bytes != 0 ? 3 : s.mixed_spans != 0 ? 4 : 0);
  }
  int status = 0;
  test::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  stop = true;
  other.join();
}

TEST_F(MixedSpans, ForksAmidConversionsBreakNoChild) {
  if (!test::kCanFork) GTEST_SKIP() << "there is no fork()";
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      Random mine = test::seeded(20 + t);
      std::vector<void*> kept;
      for (size_t phase = 0; !stop; ++phase) {
        const size_t bytes = 16 + mine.below(1000);
        for (size_t i = 0; i < (size_t{512} << 10) / bytes; ++i)
          kept.push_back(heap::allocate(bytes));
        for (size_t i = 0; i < kept.size(); ++i) std::swap(kept[i], kept[mine.below(kept.size())]);
        const size_t keep = kept.size() / 10;
        for (; kept.size() > keep; kept.pop_back()) heap::free(kept.back());
      }
      for (void* block : kept) heap::free(block);
    });
  }
  for (int i = 0; i < 60; ++i) {
    const auto child = test::fork();
    if (child == 0) {
      test::alarm(60);
      std::vector<void*> mine;
      for (size_t k = 0; k < 3000; ++k) mine.push_back(heap::allocate(16 + k % 900));
      for (void* block : mine) heap::free(block);
      _exit(heap::is_valid() ? 0 : 2);
    }
    int status = 0;
    test::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0) << "fork " << i;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_F(MixedSpans, ThreadsFreeEachOthersGuests) {
  constexpr unsigned kThreads = 3, kPlaces = 1024;
#if LOAM_THREAD_SANITIZER
  constexpr unsigned kPhases = 4;
#else
  constexpr unsigned kPhases = 12;
#endif
  const uint64_t conversions = snapshot()->mixed_conversions;
  // A block has its length at both ends.
  struct Header {
    size_t bytes;
    uint64_t check;
  };
  const auto make = [](size_t bytes) {
    char* block = static_cast<char*>(heap::allocate(bytes));
    const uint64_t check = bytes * 0x9e3779b97f4a7c15u;
    *reinterpret_cast<Header*>(block) = {bytes, check};
    if (bytes >= 2 * sizeof(Header)) memcpy(block + bytes - 8, &check, 8);
    return static_cast<void*>(block);
  };
  std::atomic<unsigned> wrong{0}, crossed{0};
  const auto drop = [&](void* block) {
    const Header header = *static_cast<Header*>(block);
    uint64_t tail = header.check;
    if (header.bytes >= 2 * sizeof(Header))
      memcpy(&tail, static_cast<char*>(block) + header.bytes - 8, 8);
    wrong += header.check != header.bytes * 0x9e3779b97f4a7c15u || tail != header.check;
    crossed += is_guest(block);
    heap::free(block);
  };
  std::vector<std::atomic<void*>> table(kPlaces);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random mine = test::seeded(30 + t);
      std::vector<void*> kept;
      for (unsigned phase = 0; phase < kPhases; ++phase) {
        const size_t least = 16 + mine.below(800);
        for (size_t i = 0; i < (kLive / 2) / least; ++i) {
          kept.push_back(make(least + mine.below(48)));
          if (mine.chance(30)) {
            std::swap(kept.back(), kept[mine.below(kept.size())]);
            if (void* other = table[mine.below(kPlaces)].exchange(kept.back())) {
              kept.back() = other;
            } else {
              kept.pop_back();
            }
          }
        }
        const size_t keep = kept.size() / 10;
        for (; kept.size() > keep; kept.pop_back()) {
          std::swap(kept.back(), kept[mine.below(kept.size())]);
          drop(kept.back());
        }
      }
      for (void* block : kept) drop(block);
    });
  }
  std::atomic<bool> stop{false};
  std::thread observer([&] {
    while (!stop) EXPECT_LE(snapshot()->live_bytes(), size_t{1} << 30);
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  observer.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(crossed.load(), 100u);
  EXPECT_GT(snapshot()->mixed_conversions, conversions);
  for (auto& place : table) {
    if (void* block = place.exchange(nullptr)) drop(block);
  }
  expect_equations(*snapshot());
}

TEST_F(MixedSpans, OwnersMayAskAboutTheirBlocksWhileTheSpanBecomesMixed) {
  // One thread has the few remaining blocks of a phase. Meanwhile another thread's growth makes
  // their spans mixed.
  for (int round = 0; round < 4; ++round) {
    fill(700, 700);
    thin();
    std::atomic<bool> stop{false};
    std::atomic<int> asked{0};
    const std::vector<void*> mine = blocks.all();
    std::thread owner([&] {
      for (size_t i = 0; !stop; ++i) {
        void* block = mine[i % mine.size()];
        ASSERT_EQ(heap::usable_size(block), 704u);
        ASSERT_TRUE(heap::try_resize(block, 700));
        ASSERT_EQ(heap::reallocate(block, 690), block);
        ++asked;
      }
    });
    while (asked < 100) std::this_thread::yield();
    std::vector<void*> others;
    for (size_t i = 0; i < kLive / 2 / 96; ++i) others.push_back(heap::allocate(96));
    stop = true;
    owner.join();
    unsigned strangers = 0;
    for (void* block : mine) strangers += is_guest(block);
    EXPECT_GT(strangers, 0u);
    for (void* block : others) heap::free(block);
  }
}

TEST_F(MixedSpans, AnEndedThreadLeavesNothingOfThemBehind) {
  LOAM_TRACE_SEED(random);
  make_guests();
  const std::vector<void*> handed = guests();
  const size_t before = snapshot()->cached_bytes;
  std::thread([&] {
    for (void* block : handed) heap::free(block);
    // The thread's magazine is full of them, and the snapshot knows them by their sizes.
    EXPECT_GT(snapshot()->cached_bytes, before);
    expect_equations(*snapshot());
  }).join();
  for (void* block : handed) {
    live -= blocks.bytes(block);
    blocks.forget(block);
  }
  EXPECT_LE(snapshot()->cached_bytes, before);
  expect_equations(*snapshot());
}

TEST_F(MixedSpans, InShardsAddUp) {
  MixedHeap& mixed = default_small_heap.mixed();
  while (mixed.parts_in_use() != MixedHeap::kHomes) mixed.use_more_parts();
  constexpr unsigned kThreads = 4;
  std::atomic<unsigned> ready{0};
  std::atomic<bool> go_on{false};
  std::vector<std::vector<void*>> kept(kThreads);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random mine = test::seeded(100 + t);
      std::vector<void*>& own = kept[t];
      for (const size_t bytes : {220, 56, 400, 120, 24}) {
        for (size_t k = 0; k < kLive / kThreads / bytes; ++k)
          own.push_back(heap::allocate(bytes - mine.below(16)));
        for (size_t keep = own.size() / 10; own.size() > keep; own.pop_back()) {
          std::swap(own[mine.below(own.size())], own.back());
          heap::free(own.back());
        }
      }
      ++ready;
      while (!go_on) std::this_thread::yield();
    });
  }
  while (ready != kThreads) std::this_thread::yield();
  // Meanwhile the threads keep the blocks of their magazines.
  EXPECT_TRUE(heap::is_valid());
  auto s = snapshot();
  expect_equations(*s);
  EXPECT_GT(s->mixed_spans, 0u);
  heap::compact();
  EXPECT_TRUE(heap::is_valid());
  s = snapshot();
  expect_equations(*s);
  const auto child = test::fork();
  if (child == 0) {
    test::alarm(60);
    for (const auto& own : kept) {
      for (void* block : own) heap::free(block);
    }
    if (!heap::is_valid()) _exit(2);
    heap::compact();
    const Snapshot its = totals();
    _exit(its.mixed_spans != 0 ? 4 : 0);
  }
  int status = 0;
  test::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  go_on = true;
  for (std::thread& thread : threads) thread.join();
  // Frees everything here: blocks of every shard, and of threads that have ended.
  for (const auto& own : kept) {
    for (void* block : own) {
      EXPECT_NE(heap::usable_size(block), 0u);
      heap::free(block);
    }
  }
}

}  // namespace
}  // namespace loam
