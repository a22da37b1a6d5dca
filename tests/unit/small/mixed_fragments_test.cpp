// Mixed spans of single pages that the page heap has backed and free, and parts that serve each
// home from its own spans.
#include "small/mixed_heap.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "map/metadata.h"
#include "os/fatal.h"
#include "small/mixed_model.h"
#include "small/steady_use.h"

namespace loam {
namespace {

namespace fake = os::fake;
using test::number;

/// Makes every second page of some slabs free and backed, so that no two of them form a run. There
/// are more than the page heap keeps for every program.
class FragmentedPages : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    pages->keep_falls();
    std::vector<Span*> spans;
    for (unsigned i = 0; i < 3 * kPagesPerSlab; ++i) {
      spans.push_back(pages->allocate_span({Pages(1), SizeClass(1), kNoClass, 0}));
      ASSERT_NE(spans.back(), nullptr);
    }
    test::use_for_a_while(*pages);
    for (unsigned i = 0; i < spans.size(); i += 2) pages->free(spans[i]);
    fragments = pages->stats().dirty.count;
    ASSERT_EQ(fragments, 3 * kPagesPerSlab / 2);
  }
  std::vector<void*> take(size_t bytes, unsigned wanted, MixedHeap::From from) {
    std::vector<void*> out(wanted);
    out.resize(test::take_blocks(mixed, class_for(bytes), out.data(), wanted, from));
    return out;
  }

  std::unique_ptr<PageHeap> pages = std::make_unique<PageHeap>();
  MixedHeap mixed{*pages};
  size_t fragments = 0;
};

TEST_F(FragmentedPages, ServeAClassWhoseSpansAreLonger) {
  const size_t bytes = 432;
  ASSERT_GT(kSizeClasses[class_for(bytes)].pages, 1);
  const uint64_t fresh = pages->stats().fresh_pages;
  EXPECT_TRUE(take(bytes, 1, MixedHeap::From::kSpans).empty())
      << "spans as they are: there is none";
  const unsigned a_page = unsigned(kPageBytes / bytes);
  std::vector<void*> blocks = take(bytes, unsigned(fragments) * a_page, MixedHeap::From::kBacked);
  const size_t used = mixed.stats().spans;
  EXPECT_EQ(blocks.size(), used * a_page);
  EXPECT_EQ(pages->stats().dirty.count, fragments - used);
  EXPECT_LE(pages->stats().dirty, PurgePolicy::kFloor) << "so little is not worth a search";
  EXPECT_EQ(pages->stats().fresh_pages, fresh) << "no page that was not backed";
  EXPECT_TRUE(mixed.is_valid());
  for (void* block : blocks) {
    ASSERT_EQ(class_at(block), kMixedClass);
    ASSERT_EQ(mixed.block_bytes(number(block)), bytes);
  }
  // The rest of each page serves smaller blocks.
  std::vector<void*> small = take(16, unsigned(used), MixedHeap::From::kSpans);
  EXPECT_EQ(small.size(), used);

  mixed.give(small.data(), unsigned(small.size()));
  mixed.give(blocks.data(), unsigned(blocks.size()));
  EXPECT_EQ(mixed.stats().spans, 0u);
  EXPECT_EQ(pages->stats().dirty.count, fragments);
  EXPECT_TRUE(pages->is_valid());
}

TEST_F(FragmentedPages, TakeNoMoreOfThemThanIsAskedFor) {
  const std::vector<void*> blocks = take(432, 10, MixedHeap::From::kBacked);
  EXPECT_EQ(blocks.size(), 10u);
  EXPECT_EQ(mixed.stats().spans, 2u);
  EXPECT_EQ(pages->stats().dirty.count, fragments - 2);
  EXPECT_TRUE(mixed.is_valid());
}

TEST_F(FragmentedPages, StayWhereMemoryForTheTablesIsRefused) {
  std::vector<void*> pieces;
  fake::fail(fake::Call::kCommitMetadata);
  fake::fail(fake::Call::kReserveMetadata);
  while (void* piece = metadata.allocate(MetadataArena::kSmallestPiece)) pieces.push_back(piece);
  EXPECT_TRUE(take(432, 10, MixedHeap::From::kBacked).empty());
  EXPECT_EQ(mixed.stats().spans, 0u);
  EXPECT_EQ(pages->stats().dirty.count, fragments);
  EXPECT_TRUE(mixed.is_valid());
  EXPECT_TRUE(pages->is_valid());
  fake::clear_failures();
  for (void* piece : pieces) metadata.free(piece, MetadataArena::kSmallestPiece);
  EXPECT_EQ(take(432, 10, MixedHeap::From::kBacked).size(), 10u);
}

TEST_F(FragmentedPages, ServeEachHomeFromOwnPart) {
  const unsigned c = class_for(432);
  const auto take_for = [&](unsigned home, MixedHeap::From from) {
    void* block = nullptr;
    return test::take_blocks(mixed, c, &block, 1, from, home) == 1 ? block : nullptr;
  };
  // With one part, a span that any home made mixed serves all homes.
  void* first = take_for(0, MixedHeap::From::kBacked);
  ASSERT_NE(first, nullptr);
  void* second = take_for(1, MixedHeap::From::kSpans);
  EXPECT_EQ(number(second), number(first) + 432);
  EXPECT_EQ(mixed.parts_in_use(), 1u);

  mixed.use_more_parts();
  ASSERT_EQ(mixed.parts_in_use(), 2u);
  EXPECT_EQ(take_for(1, MixedHeap::From::kSpans), nullptr) << "that span is home 0's";
  void* other = take_for(1, MixedHeap::From::kBacked);
  ASSERT_NE(other, nullptr);
  EXPECT_NE(number(other) / kPageBytes, number(first) / kPageBytes);
  EXPECT_EQ(number(take_for(3, MixedHeap::From::kSpans)), number(other) + 432)
      << "1 and 3 share one of two parts";
  // If a home has no free range, those of other homes are used before a fresh page.
  void* borrowed = nullptr;
  ASSERT_EQ(test::take_others_blocks(mixed, c, &borrowed, 1, 1), 1u);
  EXPECT_EQ(number(borrowed), number(first) + 2 * 432);
  EXPECT_EQ(mixed.stats().spans, 2u);
  EXPECT_EQ(mixed.stats().parts, 2u);
  EXPECT_EQ(mixed.blocks(c), 5u);
  EXPECT_TRUE(mixed.is_valid());

  // Blocks go to their spans, whichever home gives them. A block that comes twice is reported, from
  // any home.
  std::vector<void*> all;
  for (size_t i = 0; i < 3; ++i) all.push_back(reinterpret_cast<void*>(number(first) + i * 432));
  for (size_t i = 0; i < 2; ++i) all.push_back(reinterpret_cast<void*>(number(other) + i * 432));
  for (void* block : all) EXPECT_EQ(mixed.block_bytes(number(block)), kSizeClasses[c].bytes);
  std::swap(all[1], all[3]);
  mixed.give(&all[0], 4);
  set_corruption_policy(CorruptionPolicy::kReport);
  fake::take_errors();
  mixed.give(&all[0], 1);
  EXPECT_NE(fake::take_errors().find("free already"), std::string::npos) << "its span went back";
  mixed.give(&all[1], 1);
  EXPECT_NE(fake::take_errors().find("double free"), std::string::npos);
  set_corruption_policy(CorruptionPolicy::kAbort);
  EXPECT_EQ(mixed.stats().spans, 1u);
  mixed.give(&all[4], 1);
  EXPECT_EQ(mixed.stats().spans, 0u);
  EXPECT_EQ(pages->stats().dirty.count, fragments);
  EXPECT_TRUE(mixed.is_valid());
}

TEST(MixedHeapParts, MoreAreUsedUpToAllThatThereAre) {
  auto pages = std::make_unique<PageHeap>();
  MixedHeap mixed(*pages);
  for (unsigned count = 1; count < MixedHeap::kHomes; count *= 2) {
    EXPECT_EQ(mixed.parts_in_use(), count);
    mixed.use_more_parts();
  }
  mixed.use_more_parts();
  EXPECT_EQ(mixed.parts_in_use(), MixedHeap::kHomes);
}

}  // namespace
}  // namespace loam
