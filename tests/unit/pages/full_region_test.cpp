// A region in which every page is a run of its own: each run has its record, whichever shard kept
// records before.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "pages/page_heap.h"

namespace loam {
namespace {

namespace fake = os::fake;

class FullRegion : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }

  PageHeap& pages() { return *pages_; }

  // Takes spans of one page until a second region begins, which has the last one.
  std::vector<Span*> fill_a_region() {
    std::vector<Span*> spans;
    do {
      Span* const span = pages().allocate_span({Pages(1), SizeClass(8), SizeClass(8), 0});
      if (span == nullptr) {
        ADD_FAILURE() << "no span after " << spans.size();
        return {};
      }
      spans.push_back(span);
    } while (region_of(spans.back()) == region_of(spans.front()));
    return spans;
  }

 private:
  std::unique_ptr<PageHeap> pages_ = std::make_unique<PageHeap>();
};

TEST_F(FullRegion, EveryPageIsASpanThatTheMapNames) {
  const std::vector<Span*> spans = fill_a_region();
  ASSERT_EQ(spans.size(), size_t{kPagesPerRegion} + 1);
  SpanFinder finder;
  for (Span* const span : spans) {
    ASSERT_EQ(span_at(span_base(span)), span);
    ASSERT_EQ(finder.at(span_base(span)), span);
    ASSERT_EQ(class_at(reinterpret_cast<void*>(span_base(span))), 8u);
  }
  EXPECT_TRUE(pages().is_valid());
  for (Span* const span : spans) pages().free(span);
  EXPECT_TRUE(pages().is_valid());
  EXPECT_EQ(pages().stats().used, Pages(0));
}

// Large runs that were freed and joined leave their records with their shard. Any request may take
// their pages.
TEST_F(FullRegion, RecordsThatAShardKeepsServeWhenNoneIsLeft) {
  std::vector<Span*> runs;
  for (int i = 0; i < 5000; ++i)
    runs.push_back(pages().allocate_large(Pages(1), Pages(1), 1, 0).span);
  for (Span* const run : runs) pages().free(run);
  const Region* const region = region_of(runs.front());
  ASSERT_GT(region->spares[0].count, 1000u) << "else this test shows nothing";
  EXPECT_EQ(fill_a_region().size(), size_t{kPagesPerRegion} + 1);
  EXPECT_EQ(region->spares[0].count, 0u);
  EXPECT_TRUE(pages().is_valid());
}

}  // namespace
}  // namespace loam
