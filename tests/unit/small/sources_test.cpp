// The order of the sources for a refill, and what a refill reports about fresh pages.
#include "small/sources.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "small/small_heap.h"

namespace loam {
namespace {

namespace fake = os::fake;

// The table that docs/walkthrough.md quotes.
std::string table() {
  std::string text = "source        1 KiB  8 KiB  32 KiB  own slots  refused  what it is\n";
  for (const BlockSourceRow& row : kBlockSourceRows) {
    const auto mark = [&](unsigned user) { return (row.serves & user) != 0 ? 'x' : '.'; };
    char line[160];
    snprintf(line, sizeof line, "%-14s  %c      %c      %c         %c         %c      %s\n",
             row.name, mark(kUpTo1KiB), mark(kUpTo8KiB), mark(kAbove8KiB), mark(kOwnSlots),
             mark(kRefused), row.what);
    text += line;
  }
  return text;
}

TEST(BlockSources, TheWalkthroughQuotesTheTable) {
  std::ifstream file(LOAM_ROOT "/docs/walkthrough.md");
  std::stringstream walkthrough;
  walkthrough << file.rdbuf();
  ASSERT_FALSE(walkthrough.str().empty());
  EXPECT_NE(walkthrough.str().find(table()), std::string::npos)
      << "docs/walkthrough.md should have this table:\n"
      << table();
}

TEST(BlockSources, EachStandsInTheTableOnceAndFreshPagesComeLast) {
  unsigned seen = 0;
  for (const BlockSourceRow& row : kBlockSourceRows) seen |= 1u << unsigned(row.source);
  EXPECT_EQ(seen, (1u << kBlockSources) - 1);
  const BlockSourceRow& last = kBlockSourceRows[kBlockSources - 1];
  EXPECT_EQ(last.source, BlockSource::kFreshPages);
  EXPECT_EQ(last.serves, kUpTo1KiB | kUpTo8KiB | kAbove8KiB | kOwnSlots);
}

class RefillTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    pages->keep_falls();
  }
  [[nodiscard]] uint64_t fresh_pages() const { return pages->stats().fresh_pages; }

  std::unique_ptr<PageHeap> pages = std::make_unique<PageHeap>();
  std::unique_ptr<SmallHeap> heap = std::make_unique<SmallHeap>(*pages);
};

TEST_F(RefillTest, ItTellsHowManyPagesHeldNoMemory) {
  for (const size_t bytes : {size_t{64}, size_t{1024}, size_t{3072}, size_t{8192}, size_t{32768}}) {
    const unsigned c = class_for(bytes);
    std::vector<void*> blocks(100);
    const uint64_t before = fresh_pages();
    Refill first{c, blocks.data(), 100};
    ASSERT_NE(heap->take(first), 0u);
    EXPECT_EQ(first.fresh.count, fresh_pages() - before) << bytes;
    EXPECT_NE(first.fresh.count, 0u) << bytes;
    const unsigned got = first.got();
    heap->give(c, blocks.data(), got, SmallHeap::Wait::kYes);
    Refill again{c, blocks.data(), got};
    // What is left of a span that was taken in part is not worth a fresh one.
    ASSERT_GT(heap->take(again), got - kSizeClasses[c].slots);
    EXPECT_EQ(again.fresh.count, 0u) << bytes << ": all of it holds memory";
  }
}

TEST_F(RefillTest, PagesThatOthersTakeMeanwhileAreNotItsOwn) {
  const unsigned c = class_for(64);
  void* block = nullptr;
  Refill first{c, &block, 1};
  ASSERT_EQ(heap->take(first), 1u);
  ASSERT_NE(pages->allocate_large(Pages(100), Pages(1), 1, 3).span, nullptr);
  Refill second{c, &block, 1};  // from the first one's span
  ASSERT_EQ(heap->take(second), 1u);
  EXPECT_EQ(second.fresh.count, 0u);
}

}  // namespace
}  // namespace loam
