// A program that frees most of its large blocks and continues with others. Callers may notice only
// the memory that it saves.
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "heap/blocks.h"
#include "heap/default_heap.h"
#include "heap/equations.h"
#include "heap/heap.h"
#include "small/partial_span.h"
#include "this_process.h"

namespace loam {
namespace {

using test::expect_equations;
using test::Random;
using test::snapshot;

bool lies_in_partial_span(const void* block) {
  const Span* const span = span_at(reinterpret_cast<uintptr_t>(block));
  return span != nullptr && is_partial(span);
}

// A mixed span that lent pages.
bool lies_in_mixed_span_with_gaps(const void* block) {
  const Span* const span = span_at(reinterpret_cast<uintptr_t>(block));
  return span != nullptr && span->kind == SpanKind::kMixed && absent_pages(span) != 0;
}

class PartialHeap : public testing::Test {
 protected:
  static constexpr size_t kFill = size_t{48} << 20;

  static void SetUpTestSuite() { test::start_once(); }
  void SetUp() override {
    page_heap.keep_falls();
    // What huge pages back beyond the spans is bound elsewhere (decision 97).
    page_heap.huge_pages().use(HugeSurplus::When::kNever);
  }
  void TearDown() override {
    page_heap.keep_falls(false);
    page_heap.huge_pages().use(HugeSurplus::When::kLargeHeaps);
    for (void* block : kept) heap::free(block);
    for (void* block : others) heap::free(block);
    EXPECT_TRUE(heap::is_valid());
    heap::compact();
    const auto s = snapshot();
    expect_equations(*s);
    EXPECT_EQ(s->used_bytes, 0u);
  }

  // One block in four of those sizes stays, and then there are other blocks of all sizes. Each has
  // its address at either end.
  void use(size_t low = 4000, size_t high = 24'000) {
    std::vector<void*> all;
    for (size_t live = 0; live < kFill;) {
      const size_t bytes = low + random.below(high - low);
      all.push_back(filled(bytes));
      live += bytes;
    }
    for (void* block : all) {
      if (random.below(4) == 0) {
        kept.push_back(block);
      } else {
        gone.push_back(block);
        heap::free(block);
      }
    }
    for (size_t live = 0; live < kFill * 5 / 8;) {
      const size_t bytes = 500 + random.below(12'000);
      others.push_back(filled(bytes));
      live += bytes;
    }
  }
  static void* filled(size_t bytes) {
    char* const block = static_cast<char*>(heap::allocate(bytes));
    std::memcpy(block, &block, sizeof(char*));
    std::memcpy(block + bytes - sizeof block, &block, sizeof block);
    return block;
  }
  static bool is_whole(void* block) { return std::memcmp(block, &block, sizeof block) == 0; }

  Random random = test::seeded(1);
  std::vector<void*> kept, gone, others;
};

TEST_F(PartialHeap, IsSmallerAndLosesNothing) {
  LOAM_TRACE_SEED(random);
  use();
  size_t partial = 0;
  for (void* block : kept) {
    EXPECT_TRUE(is_whole(block));
    EXPECT_TRUE(seems_live(block));
    partial += lies_in_partial_span(block);
  }
  EXPECT_GT(partial, kept.size() / 8);
  for (void* block : others) EXPECT_TRUE(seems_live(block) && is_whole(block));
  EXPECT_TRUE(heap::is_valid());
  const auto s = snapshot();
  expect_equations(*s);
  EXPECT_LE(s->used_bytes + s->dirty_bytes, kFill + kFill / 5);  // 1.33 of it with pure spans
}

// Pages that went while use fell are not there for the next sizes, but hold no memory either.
TEST_F(PartialHeap, IsAsSmallWhereFreePagesWentBefore) {
  page_heap.keep_falls(false);
  LOAM_TRACE_SEED(random);
  use();
  for (void* block : kept) EXPECT_TRUE(is_whole(block) && seems_live(block));
  for (void* block : others) EXPECT_TRUE(is_whole(block) && seems_live(block));
  EXPECT_TRUE(heap::is_valid());
  const auto s = snapshot();
  expect_equations(*s);
  EXPECT_LE(s->used_bytes + s->dirty_bytes - s->unbacked_bytes, kFill + kFill / 5);
}

TEST_F(PartialHeap, IsAsSmallWhereSpansBecomeMixed) {
  LOAM_TRACE_SEED(random);
  use(1000, 8000);
  size_t mixed = 0;
  for (void* block : kept) {
    EXPECT_TRUE(is_whole(block) && seems_live(block));
    mixed += lies_in_mixed_span_with_gaps(block);
  }
  EXPECT_GT(mixed, kept.size() / 4);
  for (void* block : others) EXPECT_TRUE(is_whole(block) && seems_live(block));
  EXPECT_TRUE(heap::is_valid());
  const auto s = snapshot();
  expect_equations(*s);
  EXPECT_LE(s->used_bytes + s->dirty_bytes, kFill + kFill / 5);
}

TEST_F(PartialHeap, WhatWasFreedIsKnownToBe) {
  use(8200, 11'200);  // slots that begin inside of pages
  size_t absent = 0;
  for (void* block : gone) {
    const Span* const span = span_at(reinterpret_cast<uintptr_t>(block));
    if (span == nullptr || !is_partial(span)) continue;
    const SizeClassInfo& info = class_info(index_of(span->size_class));
    const size_t offset = reinterpret_cast<uintptr_t>(block) - span_base(span);
    if (offset % info.bytes != 0 ||
        !is_absent(span, static_cast<unsigned>(offset / info.bytes), info))
      continue;
    ++absent;
    EXPECT_FALSE(seems_live(block));
  }
  EXPECT_GT(absent, 0u) << "none begins in a page that is still the span's";
}

struct Seen {
  void* address;
  size_t bytes;
  size_t region;
  unsigned kind;
  bool operator==(const Seen&) const = default;
};

// The number of blocks in walks must not grow meanwhile.
size_t walk(Seen* to, size_t room, bool forget) {
  loam_walk_entry at{};
  at.size = sizeof at;
  const char *next = nullptr, *last = nullptr;
  size_t seen = 0;
  while (seen < room && default_heap::walk_next(&at) == LOAM_OK) {
    if (at.kind == LOAM_ENTRY_REGION) {
      EXPECT_EQ(next, last) << "a region's slots fill it";
      next = static_cast<const char*>(at.first);
      last = static_cast<const char*>(at.last);
      EXPECT_GE(next, at.address);
      EXPECT_LE(last, static_cast<const char*>(at.address) + at.bytes);
    } else if (at.kind != LOAM_ENTRY_LARGE && at.kind != LOAM_ENTRY_HUGE) {
      EXPECT_EQ(at.address, next);
      next = static_cast<const char*>(at.address) + at.bytes + at.overhead;
    }
    to[seen++] = {at.address, at.bytes, at.region, at.kind};
    if (forget) std::memset(at.cursor, 0, sizeof at.cursor);
  }
  return seen;
}

// A walk shows each block once, with and without a cursor.
void expect_that_walks_show(std::initializer_list<const std::vector<void*>*> all) {
  static Seen with[200'000], without[200'000];
  const size_t seen = walk(with, std::size(with), false);
  ASSERT_LT(seen, std::size(with));
  ASSERT_EQ(walk(without, std::size(without), true), seen);
  std::map<const void*, unsigned> shown;
  for (size_t i = 0; i < seen; ++i) {
    ASSERT_EQ(with[i], without[i]) << i;
    if (with[i].kind == LOAM_ENTRY_SMALL) ++shown[with[i].address];
  }
  for (const auto* blocks : all) {
    for (const void* block : *blocks) ASSERT_EQ(shown[block], 1u);
  }
}

TEST_F(PartialHeap, AWalkShowsEveryBlockOfPartialSpansOnce) {
  use();
  expect_that_walks_show({&kept, &others});
}

TEST_F(PartialHeap, AWalkShowsEveryBlockOfMixedSpansThatLentOnce) {
  use(1000, 8000);
  expect_that_walks_show({&kept, &others});
}

TEST_F(PartialHeap, IsWholeInAChild) {
  if (!test::kCanFork) GTEST_SKIP() << "there is no fork()";
  use();
  const auto child = test::fork();
  if (child == 0) {
    bool whole = heap::is_valid();
    for (void* block : kept) whole = whole && is_whole(block), heap::free(block);
    for (void* block : others) whole = whole && is_whole(block), heap::free(block);
    heap::compact();
    _exit(whole && heap::is_valid() && snapshot()->live_small_bytes <= size_t{1} << 20 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(test::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(PartialHeap, ThreadsInDifferentPhasesShareThePages) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      Random of_thread = test::seeded(t);
      std::vector<void*> live;
      for (unsigned round = 0; round < 12; ++round) {
        const unsigned low = 10 + (round + t) % 4;
        for (unsigned i = 0; i < 1500; ++i)
          live.push_back(filled((size_t{1} << low) + of_thread.below(1u << low)));
        std::vector<void*> left;
        for (void* block : live) {
          EXPECT_TRUE(is_whole(block));
          if (of_thread.below(8) == 0) {
            left.push_back(block);
          } else {
            heap::free(block);
          }
        }
        live = left;
      }
      for (void* block : live) {
        EXPECT_TRUE(is_whole(block) && seems_live(block));
        heap::free(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace loam
