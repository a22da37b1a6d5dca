// Free memory is purged when long runs take fresh pages, so a buffer that doubles leaves nothing
// behind.
#include "pages/page_heap.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "fake_system/fake.h"
#include "pages/page_heap_model.h"

namespace loam {
namespace {

namespace fake = os::fake;

constexpr size_t kBlockPages = kPagesPerSlab;

class GrowthTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    heap().keep_falls();
  }

  PageHeap& heap() { return *heap_; }
  Span* allocate(size_t pages) {
    Span* const span = heap().allocate_large(Pages(pages), Pages(1), pages * kPageBytes, 3).span;
    EXPECT_NE(span, nullptr);
    return span;
  }
  void write(const Span* span, size_t first, size_t pages) {
    fake::touch(span_base(span) + first * kPageBytes, pages * kPageBytes);
    peak_ = std::max(peak_, fake::resident_bytes() / kPageBytes);
  }
  uint64_t purged() { return heap().stats().purged_pages; }
  /// The highest number of resident pages.
  [[nodiscard]] size_t peak() const { return peak_; }

  /// Doubles a buffer from one length to the other, as a vector does. The new buffer has the old
  /// one's content when that is freed, and is filled then.
  Span* grow(size_t from, size_t to) {
    Span* buffer = allocate(from);
    write(buffer, 0, from);
    for (size_t length = from; length != to; length *= 2) {
      Span* const longer = allocate(2 * length);
      write(longer, 0, length);
      heap().free(buffer);
      write(longer, length, length);
      buffer = longer;
    }
    return buffer;
  }

 private:
  std::unique_ptr<PageHeap> heap_ = std::make_unique<PageHeap>();
  size_t peak_ = 0;
};

TEST_F(GrowthTest, ABufferThatDoublesLeavesNothingBehind) {
  const size_t length = kMaxRun.count;
  const Span* const buffer = grow(2 * kBlockPages, length);
  EXPECT_LE(peak(), length + length / 8) << "its length, and what a look at a sixteenth misses";
  EXPECT_EQ(fake::written_bytes(span_base(buffer), length * kPageBytes), length * kPageBytes);
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(GrowthTest, ABufferInAMappingOfItsOwnIsPaidForToo) {
  const size_t length = kMaxRun.count;
  Span* const buffer = grow(2 * kBlockPages, length);
  auto* const mapped = static_cast<char*>(os::map_block(2 * length * kPageBytes, kPageBytes));
  ASSERT_NE(mapped, nullptr);
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  heap().note_huge({}, {address, Pages(2 * length)});
  fake::touch(address, length * kPageBytes);
  heap().free(buffer);
  EXPECT_LE(fake::resident_bytes() / kPageBytes, length + length / 8);
  heap().note_huge({address, Pages(2 * length)}, {});
  os::release(mapped, 2 * length * kPageBytes);
}

TEST_F(GrowthTest, WhatIsFreeGoesWhereALongRunFindsNoPlaceInIt) {
  Span* const first = allocate(4 * kBlockPages);
  write(first, 0, 4 * kBlockPages);
  heap().free(first);
  EXPECT_EQ(purged(), 0u) << "it may come again";
  // A small one stays in place.
  Span* const small = allocate(kBlockPages / 2);
  write(small, 0, kBlockPages / 2);
  Span* const again = allocate(4 * kBlockPages);
  write(again, 0, 4 * kBlockPages);
  EXPECT_LE(peak(), 5 * kBlockPages);
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(GrowthTest, ABufferThatComesAgainIsKept) {
  for (int round = 0; round < 10; ++round) {
    Span* const buffer = allocate(4 * kBlockPages);
    write(buffer, 0, 4 * kBlockPages);
    heap().free(buffer);
  }
  EXPECT_EQ(purged(), 0u);
  EXPECT_EQ(heap().stats().fresh_pages, 4 * kBlockPages);
}

TEST_F(GrowthTest, TwoBuffersInTurnPayOnce) {
  constexpr size_t kLength = 4 * kBlockPages;
  Span* buffer = allocate(kLength);
  write(buffer, 0, kLength);
  for (int round = 0; round < 20; ++round) {
    Span* const next = allocate(kLength);
    heap().free(buffer);  // nothing has been written to it yet
    write(next, 0, kLength);
    buffer = next;
  }
  EXPECT_LE(purged(), kLength);
  EXPECT_LE(heap().stats().fresh_pages, 3 * kLength);
}

// The heap does not see what the program wrote, and takes it for a copy of the shorter one.
TEST_F(GrowthTest, ForWhatWasWrittenAllOverNoMoreGoesThanItIsLonger) {
  constexpr size_t kLength = 4 * kBlockPages;
  Span* const table = allocate(kLength);
  write(table, 0, kLength);
  Span* const longer = allocate(2 * kLength);
  write(longer, 0, 2 * kLength);  // like a buffer that is zeroed before it is filled
  heap().free(table);
  EXPECT_LE(purged(), kLength);
}

TEST_F(GrowthTest, ARunThatGrowsWhereItStandsIsPaidForToo) {
  constexpr size_t kLength = 4 * kBlockPages;
  Span* const old = allocate(kLength);
  write(old, 0, kLength);
  Span* const growing = allocate(2 * kBlockPages);
  write(growing, 0, 2 * kBlockPages);
  heap().free(old);
  ASSERT_TRUE(heap().resize_large(growing, Pages(3 * kLength), 3 * kLength * kPageBytes));
  write(growing, 0, 3 * kLength);
  EXPECT_LE(peak(), 3 * kLength + kLength / 4);
}

TEST_F(GrowthTest, ARunThatShrinksOwesNothing) {
  constexpr size_t kLength = 4 * kBlockPages;
  Span* const old = allocate(kLength);
  write(old, 0, kLength);
  Span* const longer = allocate(2 * kLength);
  ASSERT_TRUE(heap().resize_large(longer, Pages(kLength), kLength * kPageBytes));
  heap().free(old);
  EXPECT_EQ(purged(), 0u);
}

TEST_F(GrowthTest, ABlockInAMappingOfItsOwnThatWentOwesNothing) {
  constexpr size_t kLength = 4 * kBlockPages;
  Span* const old = allocate(kLength);
  write(old, 0, kLength);
  auto* const mapped = static_cast<char*>(os::map_block(2 * kMaxRun.bytes(), kPageBytes));
  ASSERT_NE(mapped, nullptr);
  const GrowthDebt::Debtor block{reinterpret_cast<uintptr_t>(mapped), Pages(2 * kMaxRun.count)};
  heap().note_huge({}, block);
  heap().note_huge(block, {});
  os::release(mapped, 2 * kMaxRun.bytes());
  heap().free(old);
  EXPECT_EQ(purged(), 0u);
}

TEST_F(GrowthTest, APaymentIsBounded) {
  std::vector<Span*> runs;
  for (int i = 0; i < 6; ++i) runs.push_back(allocate(kMaxRun.count));
  for (Span* run : runs) write(run, 0, kMaxRun.count);
  for (Span* run : runs) heap().free(run);
  const uint64_t before = purged();
  constexpr uintptr_t kAddress = uintptr_t{1} << 42;  // no call looks at it
  heap().note_huge({}, {kAddress, Pages(16 * kMaxRun.count)});
  EXPECT_EQ(purged() - before, 2 * kMaxRun.count) << "six times kMaxRun were free";
  EXPECT_TRUE(heap().is_valid());
}

TEST_F(GrowthTest, ARefusedPurgeIsNoPayment) {
  constexpr size_t kLength = 4 * kBlockPages;
  Span* const old = allocate(kLength);
  write(old, 0, kLength);
  Span* const longer = allocate(2 * kLength);
  fake::fail(fake::Call::kPurge);
  heap().free(old);
  EXPECT_EQ(purged(), 0u);
  EXPECT_EQ(heap().stats().dirty, Pages(kLength));
  fake::clear_failures();
  EXPECT_TRUE(heap().is_valid());
  heap().free(longer);
}

}  // namespace
}  // namespace loam
