// Mappings of freed large blocks: kept for the next block, unmapped when the heap takes fresh
// pages, and after a time.
#include <memory>
#include <new>

#include "fake_system/fake.h"
#include "pages/huge_map.h"
#include "pages/page_heap_model.h"

namespace loam {
namespace {

namespace fake = os::fake;
using fake::Call;

constexpr size_t kLong = 4 * kMaxRun.count;
constexpr size_t kBytes = kLong * kPageBytes;

class MappingsTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    fake::set_clock_ms(100'000);
  }

  PageHeap& heap() { return *heap_; }
  /// Like HugeMap::allocate() and free().
  uintptr_t allocate(size_t pages) {
    const IdleMappings::Mapping kept = heap().take_mapping(Pages(pages), kPageBytes);
    const bool is_fresh = kept.pages != Pages(pages);
    const auto address =
        is_fresh ? reinterpret_cast<uintptr_t>(os::map_block(pages * kPageBytes, kPageBytes))
                 : kept.address;
    EXPECT_TRUE(is_fresh || kept.address != 0);
    heap().note_huge({0, Pages(is_fresh ? 0 : pages)}, {address, Pages(pages)});
    return address;
  }
  bool free(uintptr_t address, size_t pages) {
    if (heap().keep_mapping(address, Pages(pages))) return true;
    os::release(reinterpret_cast<void*>(address), pages * kPageBytes);
    return false;
  }
  /// Makes one mapping wait.
  void keep_one() {
    EXPECT_FALSE(free(allocate(kLong), kLong)) << "once is no habit";
    EXPECT_TRUE(free(allocate(kLong), kLong));
    EXPECT_EQ(fake::reserved_bytes(), kBytes);
  }
  Span* allocate_run(size_t pages) {
    return heap().allocate_large(Pages(pages), Pages(1), pages * kPageBytes, 3).span;
  }
  [[nodiscard]] size_t idle_bytes() { return heap().stats().dirty.bytes(); }

 private:
  std::unique_ptr<PageHeap> heap_ = std::make_unique<PageHeap>();
};

TEST_F(MappingsTest, WhoRepeatsMapsNoMore) {
  keep_one();
  const uint64_t before = fake::calls(Call::kMapBlock);
  for (int round = 0; round < 20; ++round) ASSERT_TRUE(free(allocate(kLong), kLong));
  EXPECT_EQ(fake::calls(Call::kMapBlock), before);
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(MappingsTest, ItIsCountedAsFreeAndBacked) {
  keep_one();
  const PageStats s = heap().stats();
  EXPECT_EQ(s.dirty.bytes(), kBytes);
  EXPECT_EQ(s.committed_bytes, kBytes);
  EXPECT_EQ(s.reserved_bytes, kBytes);
}

TEST_F(MappingsTest, ForALongRunsFreshPagesAsManyGo) {
  keep_one();
  ASSERT_NE(allocate_run(kMaxRun.count), nullptr);
  EXPECT_EQ(idle_bytes(), kBytes - kMaxRun.bytes());
}

TEST_F(MappingsTest, ForSpansFreshPagesAsManyGoSoon) {
  keep_one();
  const SpanOwner owner{3};
  size_t pages = 0;
  while (pages < kMaxRun.count) {
    ASSERT_NE(heap().allocate_span({Pages(16), SizeClass{1}, kNoClass, owner}), nullptr);
    pages += 16;
    ASSERT_LE(idle_bytes() + pages * kPageBytes, kBytes + Pages(16 * 64).bytes())
        << "a few operations late";
  }
}

TEST_F(MappingsTest, ForAnotherMappingAsManyGo) {
  keep_one();
  const auto address = reinterpret_cast<uintptr_t>(os::map_block(kMaxRun.bytes(), kPageBytes));
  heap().note_huge({}, {address, kMaxRun});  // like a block that must be zero
  EXPECT_EQ(idle_bytes(), kBytes - kMaxRun.bytes());
}

TEST_F(MappingsTest, ForAsMuchAsTheLastOneIsLongerAsManyGo) {
  keep_one();
  const uintptr_t old = allocate(kLong);
  fake::touch(old, kBytes);
  const uintptr_t longer = allocate(2 * kLong);
  fake::touch(longer, kBytes);  // like a copy
  EXPECT_TRUE(free(old, kLong));
  EXPECT_EQ(idle_bytes(), 0u);
}

TEST_F(MappingsTest, NobodysGoesInTime) {
  keep_one();
  EXPECT_TRUE(heap().hints().wants_ticks());
  fake::advance_ms(IdleMappings::kKeptMs);
  heap().tick();
  EXPECT_EQ(fake::reserved_bytes(), kBytes);
  fake::advance_ms(1);
  heap().tick();
  EXPECT_EQ(fake::reserved_bytes(), kBytes - 2 * kMaxRun.bytes())
      << "so much a tick, which somebody waits for";
  heap().tick();
  EXPECT_EQ(fake::reserved_bytes(), 0u);
  heap().tick();
  EXPECT_FALSE(heap().hints().wants_ticks());
  EXPECT_FALSE(free(allocate(kLong), kLong)) << "and the habit is forgotten";
}

TEST_F(MappingsTest, WhatIsOwedIsPaidTickByTick) {
  keep_one();
  const auto address = reinterpret_cast<uintptr_t>(os::map_block(2 * kBytes, kPageBytes));
  heap().note_huge({}, {address, Pages(2 * kLong)});
  EXPECT_EQ(idle_bytes(), kBytes - 2 * kMaxRun.bytes());
  heap().tick();
  EXPECT_EQ(idle_bytes(), 0u);
}

TEST_F(MappingsTest, TrimReturnsAllOfThem) {
  keep_one();
  EXPECT_EQ(heap().purge_all(), Pages(kLong));
  EXPECT_EQ(fake::reserved_bytes(), 0u);
}

TEST_F(MappingsTest, WhereAddressesAreScarceTheyGo) {
  keep_one();
  EXPECT_TRUE(heap().release_idle_extents());
  EXPECT_EQ(fake::reserved_bytes(), 0u);
}

TEST_F(MappingsTest, WhatASystemRefusesIsAskedForAgainWithoutThem) {
  keep_one();
  fake::limit_reserved(kBytes + (size_t{64} << 20));
  EXPECT_NE(allocate_run(kMaxRun.count), nullptr);
  EXPECT_TRUE(heap().is_valid());
}

// ---- through the table -------------------------------------------------------------------------

class KeptBlocksTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    fake::set_clock_ms(100'000);
    new (&page_heap) PageHeap;  // the process's own: it may keep mappings of an earlier test
    for (int i = 0; i < 2; ++i) {
      kept = allocate(kBytes);
      ASSERT_TRUE(map.free(kept));
    }
    ASSERT_EQ(fake::reserved_bytes(), kBytes);
  }
  void TearDown() override {
    static_cast<void>(page_heap.purge_all());
    EXPECT_TRUE(page_heap.is_valid());
    EXPECT_TRUE(map.is_valid());
  }
  uintptr_t allocate(size_t bytes, bool zero = false) {
    is_zero = zero;
    return reinterpret_cast<uintptr_t>(map.allocate(bytes, kPageBytes, 0, &is_zero));
  }

  HugeMap map;
  bool is_zero = false;
  uintptr_t kept = 0;
};

TEST_F(KeptBlocksTest, ABlockThatNeedNotBeZeroGetsOne) {
  const uintptr_t block = allocate(kBytes);
  EXPECT_EQ(block, kept);
  EXPECT_FALSE(is_zero);
  EXPECT_TRUE(map.free(block));
}

TEST_F(KeptBlocksTest, AZeroedBlockGetsAFreshOne) {
  const uintptr_t block = allocate(kBytes, true);
  EXPECT_NE(block, kept);
  EXPECT_TRUE(is_zero);
  EXPECT_TRUE(map.free(block));
}

TEST_F(KeptBlocksTest, AShorterBlockGetsAPart) {
  const uintptr_t block = allocate(kBytes / 2);
  EXPECT_EQ(block, kept);
  EXPECT_EQ(map.totals().mapped_bytes, kBytes / 2);
  EXPECT_EQ(fake::reserved_bytes(), kBytes);
  EXPECT_TRUE(map.free(block));
  EXPECT_EQ(allocate(kBytes), kept) << "the parts have joined";
  EXPECT_TRUE(map.free(kept));
}

TEST_F(KeptBlocksTest, ALongerBlockGetsItMadeLonger) {
  const uint64_t before = fake::calls(Call::kMapBlock);
  const uintptr_t block = allocate(2 * kBytes);
  EXPECT_EQ(fake::calls(Call::kMapBlock), before);
  EXPECT_EQ(map.totals().mapped_bytes, 2 * kBytes);
  EXPECT_TRUE(fake::is_committed(block, 2 * kBytes));
  EXPECT_FALSE(is_zero);
  EXPECT_TRUE(map.free(block));
}

TEST_F(KeptBlocksTest, ABlockGrowsIntoWhatIsKeptBehindIt) {
  const uintptr_t block = allocate(kBytes / 4);
  ASSERT_EQ(block, kept);
  const uint64_t before = fake::calls(Call::kRemapBlock);
  EXPECT_EQ(map.resize(block, kBytes / 2, true), reinterpret_cast<void*>(kept));
  EXPECT_EQ(map.find(block).mapped, kBytes / 2);
  EXPECT_EQ(fake::calls(Call::kRemapBlock), before);
  EXPECT_EQ(fake::reserved_bytes(), kBytes);
  // More than all of it.
  const auto moved = reinterpret_cast<uintptr_t>(map.resize(block, 2 * kBytes, false));
  EXPECT_EQ(map.find(moved).mapped, 2 * kBytes);
  EXPECT_EQ(fake::reserved_bytes(), 2 * kBytes);
  EXPECT_EQ(page_heap.stats().dirty, Pages(0));
  EXPECT_TRUE(map.free(moved));
}

TEST_F(KeptBlocksTest, ABlockThatMustGrowByZeroPagesTakesNothingThatIsKept) {
  const uintptr_t block = allocate(kBytes / 4);
  ASSERT_EQ(block, kept);
  EXPECT_EQ(map.resize(block, kBytes / 2, true, 0, true), nullptr) << "what is kept is behind it";
  EXPECT_EQ(map.find(block).mapped, kBytes / 4);
  const auto moved = reinterpret_cast<uintptr_t>(map.resize(block, kBytes / 2, false, 0, true));
  EXPECT_NE(moved, block);
  EXPECT_EQ(page_heap.stats().dirty.bytes(), kBytes / 2)
      << "kept, but for as much as it took fresh";
  EXPECT_TRUE(map.free(moved));
}

TEST_F(KeptBlocksTest, ABlockThatCannotGrowIsAsItWas) {
  const uintptr_t block = allocate(kBytes / 4);
  fake::fail(Call::kRemapBlock);
  EXPECT_EQ(map.resize(block, 2 * kBytes, false), nullptr);
  fake::clear_failures();
  EXPECT_EQ(map.find(block).mapped, kBytes / 4);
  EXPECT_EQ(fake::reserved_bytes(), kBytes / 4) << "what was kept behind it is gone";
  EXPECT_TRUE(fake::is_committed(block, kBytes / 4));
  EXPECT_TRUE(map.free(block));
}

TEST_F(KeptBlocksTest, WhereItCannotGrowAFreshOneServes) {
  fake::fail(Call::kRemapBlock);
  const uintptr_t block = allocate(2 * kBytes);
  EXPECT_NE(block, 0u);
  EXPECT_TRUE(is_zero);
  EXPECT_EQ(fake::reserved_bytes(), 2 * kBytes) << "the short one is gone";
  fake::clear_failures();
  EXPECT_TRUE(map.free(block));
}

TEST_F(KeptBlocksTest, WhoMayNotWaitGoes) {
  const uintptr_t block = allocate(kBytes);
  EXPECT_TRUE(map.free(block, false));
  EXPECT_EQ(fake::reserved_bytes(), 0u);
}

TEST_F(KeptBlocksTest, ABlockWhoseEntryIsRefusedGoes) {
  HugeMap other;
  fake::fail(Call::kReserveMetadata);
  bool zero = false;
  EXPECT_EQ(other.allocate(kBytes, kPageBytes, 0, &zero), nullptr);
  EXPECT_EQ(fake::reserved_bytes(), 0u);
  fake::clear_failures();
}

}  // namespace
}  // namespace loam
