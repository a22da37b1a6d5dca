// The map answers for any 64-bit value, and names exactly the pages that were published.
#include "map/page_map.h"

#include <cstring>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "os/os.h"
#include "random.h"

namespace loam {
namespace {

namespace fake = os::fake;

class PageMap : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    base_ = reinterpret_cast<uintptr_t>(os::reserve(kRegionBytes, kRegionBytes));
    region_ = add_region(base_);
    ASSERT_NE(region_, nullptr);
  }

  /// A published span of `pages` pages at page `first`.
  Span* publish(uint32_t first, unsigned pages, unsigned size_class) {
    Span* span = take_span_record(region_);
    if (span == nullptr) return nullptr;
    span->first_page = first;
    span->page_count = static_cast<uint8_t>(pages);
    span->kind = SpanKind::kSmall;
    publish_span(region_, span, Pages(pages), SizeClass(size_class));
    return span;
  }

  static size_t class_of(uintptr_t address) { return class_at(reinterpret_cast<void*>(address)); }

  uintptr_t base_ = 0;
  Region* region_ = nullptr;
};

void expect_nothing_at(uintptr_t address) {
  EXPECT_EQ(class_at(reinterpret_cast<void*>(address)), 0u) << std::hex << address;
  EXPECT_EQ(region_at(address), nullptr) << std::hex << address;
  EXPECT_EQ(span_at(address), nullptr) << std::hex << address;
}

TEST_F(PageMap, AddressesOutsideEveryRegionAreNothing) {
  int local = 0;
  for (const uintptr_t address :
       {uintptr_t{0}, uintptr_t{1}, uintptr_t{16}, uintptr_t{0xfff}, base_ - 16,
        base_ + kRegionBytes, reinterpret_cast<uintptr_t>(&local),
        (uintptr_t{1} << kAddressBits) - 16, uintptr_t{1} << kAddressBits,
        uintptr_t{0xffff'8000'0000'0000}, UINTPTR_MAX - 15, UINTPTR_MAX,
        reinterpret_cast<uintptr_t>(region_)}) {
    expect_nothing_at(address);
  }
}

TEST_F(PageMap, AnyValueIsAnsweredWithoutAFault) {
  ASSERT_NE(publish(7, 3, 5), nullptr);
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  for (int i = 0; i < 1'000'000; ++i) {
    // Every magnitude occurs, so that there are high, low and non-canonical addresses.
    const uintptr_t address = random.next() >> random.below(64);
    if (const Region* const region = region_at(address)) {  // this test's, or an earlier one's
      const auto base = reinterpret_cast<uintptr_t>(region->page_address(PageId(0)));
      ASSERT_EQ(address >> kRegionShift, base >> kRegionShift) << std::hex << address;
      continue;
    }
    ASSERT_EQ(class_of(address), 0u) << std::hex << address;
  }
}

TEST_F(PageMap, EveryBlockOfASpanHasItsClassAndTheNeighboursHaveNone) {
  const Span* span = publish(100, 4, 9);
  const uintptr_t begin = base_ + 100 * kPageBytes;
  for (uintptr_t address = begin; address < begin + 4 * kPageBytes; address += 16) {
    ASSERT_EQ(class_of(address), 9u);
    ASSERT_EQ(span_at(address), span);
  }
  for (const uintptr_t address : {begin - 16, begin + 4 * kPageBytes}) {
    EXPECT_EQ(class_of(address), 0u);
    EXPECT_EQ(span_at(address), nullptr);
    EXPECT_EQ(region_at(address), region_);
  }
  EXPECT_EQ(span_base(span), begin);
  EXPECT_EQ(region_of(span), region_);
}

TEST_F(PageMap, AMisalignedPointerHasNoClassEvenInsideASpan) {
  ASSERT_NE(publish(0, 1, 9), nullptr);
  for (uintptr_t offset = 1; offset < 16; ++offset) EXPECT_EQ(class_of(base_ + offset), 0u);
  EXPECT_EQ(class_of(base_ + 16), 9u);
}

TEST_F(PageMap, ANonCanonicalTwinOfALiveBlockHasNoClass) {
  ASSERT_NE(publish(0, 1, 9), nullptr);
  for (unsigned bit = kAddressBits; bit < 64; ++bit) {
    expect_nothing_at(base_ | (uintptr_t{1} << bit));
  }
}

TEST_F(PageMap, TheFirstAndTheLastPageOfARegionAreItsOwn) {
  ASSERT_NE(publish(0, 1, 1), nullptr);
  ASSERT_NE(publish(kPagesPerRegion - 2, 2, 2), nullptr);
  EXPECT_EQ(class_of(base_), 1u);
  EXPECT_EQ(class_of(base_ + kRegionBytes - 16), 2u);
  EXPECT_EQ(region_at(base_ + kRegionBytes - 1), region_);
  EXPECT_EQ(region_at(base_ + kRegionBytes), nullptr);
  EXPECT_EQ(region_at(base_ - 1), nullptr);
}

TEST_F(PageMap, AnUnpublishedSpanLeavesNoTrace) {
  Span* span = publish(50, 8, 3);
  unpublish_span(region_, span, Pages(8));
  return_span_record(region_, span);
  for (unsigned i = 0; i < 8; ++i) {
    EXPECT_EQ(class_of(base_ + (50 + i) * kPageBytes), 0u);
    EXPECT_EQ(span_at(base_ + (50 + i) * kPageBytes), nullptr);
  }
}

TEST_F(PageMap, ALargeRunAnswersAtItsFirstPageOnly) {
  Span* span = take_span_record(region_);
  span->first_page = 10;
  span->kind = SpanKind::kLarge;
  span->large.pages = 20;
  publish_large(span);
  EXPECT_EQ(span_at(base_ + 10 * kPageBytes), span);
  EXPECT_EQ(span_at(base_ + 11 * kPageBytes), nullptr);
  EXPECT_EQ(class_of(base_ + 10 * kPageBytes), 0u);
  unpublish_large(span);
  EXPECT_EQ(span_at(base_ + 10 * kPageBytes), nullptr);
}

TEST_F(PageMap, TheHighestRegionOfTheAddressSpaceWorks) {
  const uintptr_t top = (uintptr_t{1} << kAddressBits) - kRegionBytes;
  Region* region = add_region(top);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region_at(top + kRegionBytes - 1), region);
  EXPECT_EQ(region_at(top + kRegionBytes), nullptr);
  directory[top >> kRegionShift].publish(0);
}

TEST_F(PageMap, RegionsDoNotMix) {
  const uintptr_t other_base = reinterpret_cast<uintptr_t>(os::reserve(kRegionBytes, kRegionBytes));
  Region* other = add_region(other_base);
  ASSERT_NE(other, nullptr);
  ASSERT_NE(publish(5, 1, 7), nullptr);
  EXPECT_EQ(class_of(base_ + 5 * kPageBytes), 7u);
  EXPECT_EQ(class_of(other_base + 5 * kPageBytes), 0u);
  EXPECT_EQ(region_at(other_base), other);
}

TEST_F(PageMap, AFinderAnswersAsTheMapWhateverItWasAskedBefore) {
  const uintptr_t other_base = reinterpret_cast<uintptr_t>(os::reserve(kRegionBytes, kRegionBytes));
  ASSERT_NE(add_region(other_base), nullptr);
  ASSERT_NE(publish(100, 4, 9), nullptr);
  ASSERT_NE(publish(kPagesPerRegion - 1, 1, 2), nullptr);
  const uintptr_t some[] = {base_ + 100 * kPageBytes,
                            base_ + 103 * kPageBytes + 16,
                            base_ + 104 * kPageBytes,
                            base_ + kRegionBytes - 1,
                            base_ + kRegionBytes,
                            base_,
                            base_ - 1,
                            other_base,
                            other_base + 100 * kPageBytes,
                            0,
                            uintptr_t{1} << 63,
                            UINTPTR_MAX,
                            (base_ + 100 * kPageBytes) | uintptr_t{1} << 63};
  const auto expected = [](uintptr_t address) {
    const Span* span = span_at(address);
    return span != nullptr ? span : &no_span;
  };
  for (const uintptr_t first : some) {
    for (const uintptr_t second : some) {
      SpanFinder spans;
      EXPECT_EQ(spans.at(first), expected(first)) << std::hex << first;
      EXPECT_EQ(spans.at(second), expected(second)) << std::hex << first << ' ' << second;
      EXPECT_EQ(spans.at(first), expected(first)) << std::hex << first << ' ' << second;
    }
  }
}

TEST_F(PageMap, RecordsAreDistinctZeroedAndReused) {
  std::set<Span*> taken;
  std::vector<Span*> order;
  for (unsigned i = 0; i < 10'000; ++i) {
    Span* span = take_span_record(region_);
    ASSERT_NE(span, nullptr);
    ASSERT_TRUE(taken.insert(span).second);
    ASSERT_EQ(span->kind, SpanKind::kNone);
    ASSERT_EQ(span->free_bits[3], 0u);
    ASSERT_EQ(region_of(span), region_);
    ASSERT_NE(span, &region_->spans[0]) << "record 0 means none";
    memset(static_cast<void*>(span), 0xff, sizeof *span);
    order.push_back(span);
  }
  for (Span* span : order) return_span_record(region_, span);
  for (unsigned i = 0; i < 10'000; ++i) {
    Span* span = take_span_record(region_);
    ASSERT_EQ(taken.erase(span), 1u) << "a returned record comes before a fresh one";
    ASSERT_EQ(span, order[i]) << "in the order in which they lie";
    ASSERT_EQ(span->free_slots, 0u);
    ASSERT_EQ(span->next, nullptr);
  }
}

TEST_F(PageMap, EveryPageOfARegionCanHaveItsRecord) {
  Span* span = nullptr;
  for (unsigned page = 0; page < kPagesPerRegion; ++page) {
    span = take_span_record(region_);
    ASSERT_NE(span, nullptr) << page;
    span->first_page = page;  // each record can be written
  }
  EXPECT_EQ(region_->spans_used, kRecordsPerRegion);
  EXPECT_EQ(take_span_record(region_), nullptr) << "there is one a page, and record 0 is none";
  publish_span(region_, span, Pages(1), SizeClass(5));
  const uintptr_t last = base_ + (kPagesPerRegion - 1) * kPageBytes;
  SpanFinder finder;
  EXPECT_EQ(span_at(last), span);
  EXPECT_EQ(finder.at(last), span);
  return_span_record(region_, span);
  EXPECT_EQ(take_span_record(region_), span);
}

TEST_F(PageMap, ARefusedCommitOfRecordsLosesNothing) {
  const unsigned committed = region_->spans_committed;
  for (unsigned i = 1; i < committed; ++i) ASSERT_NE(take_span_record(region_), nullptr);
  fake::fail(fake::Call::kCommitMetadata, 1, 2);
  EXPECT_EQ(take_span_record(region_), nullptr);
  EXPECT_EQ(take_span_record(region_), nullptr);
  Span* span = take_span_record(region_);
  ASSERT_NE(span, nullptr);
  EXPECT_EQ(span, &region_->spans[committed]);
}

TEST_F(PageMap, PagesOfFreeRecordsGoBackAndComeAgainAsRecordsOfNoRun) {
  constexpr unsigned kTaken = 1'000, kKept = 500;
  constexpr unsigned kPerPage = kPageBytes / sizeof(Span);
  Span* spans[kTaken];
  for (Span*& span : spans) {
    span = take_span_record(region_);
    ASSERT_NE(span, nullptr);
    span->kind = SpanKind::kSmall;
    span->heap = 7;
  }
  EXPECT_EQ(purge_free_records(region_), 0u) << "all are in use";
  const size_t before = metadata_bytes(region_);
  for (unsigned i = 0; i < kTaken; ++i) {
    if (i != kKept) return_span_record(region_, spans[i]);
  }
  const size_t few = purge_free_records(region_, 3 * kPageBytes);
  EXPECT_EQ(few, 3 * kPageBytes) << "no more than is wanted";
  EXPECT_TRUE(purged_records_are_valid(region_));
  const size_t purged = few + purge_free_records(region_);
  // All pages except that of the remaining record, and the pages at both ends, which hold other
  // data too.
  EXPECT_GE(purged, (kTaken / kPerPage - 3) * kPageBytes);
  EXPECT_LE(purged, (kTaken - 1) * sizeof(Span));
  EXPECT_EQ(metadata_bytes(region_), before - purged);
  EXPECT_EQ(purge_free_records(region_), 0u) << "once";
  EXPECT_TRUE(purged_records_are_valid(region_));
  EXPECT_EQ(spans[kKept]->heap, 7u);
  for (unsigned i = 0; i < kTaken; ++i) {
    if (i == kKept) continue;
    Span* const again = take_span_record(region_);
    ASSERT_EQ(again, spans[i]) << "the lowest first";
    ASSERT_EQ(again->kind, SpanKind::kNone);
    again->heap = 7;
    ASSERT_TRUE(purged_records_are_valid(region_)) << i;
  }
  EXPECT_EQ(metadata_bytes(region_), before);
}

TEST_F(PageMap, RecordsOfWhichPagesAreRefusedOrGoAtAnyTimeKeepWhatIsInUse) {
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  std::vector<Span*> used;
  size_t purged = 0;
  for (int round = 0; round < 40; ++round) {
    const bool grows = round % 2 == 0;
    for (int step = 0; step < 2'000; ++step) {
      if (used.empty() || random.chance(grows ? 90 : 3)) {
        Span* const span = take_span_record(region_);
        ASSERT_NE(span, nullptr);
        ASSERT_EQ(span->first_page, 0u);
        span->first_page = static_cast<uint32_t>(span - region_->spans);
        used.push_back(span);
      } else {
        std::swap(used[random.below(static_cast<uint32_t>(used.size()))], used.back());
        return_span_record(region_, used.back());
        used.pop_back();
      }
    }
    if (round % 5 == 1) {
      fake::fail(fake::Call::kPurgeMetadata, 1, 1000);
      EXPECT_EQ(purge_free_records(region_), 0u);
      fake::fail(fake::Call::kPurgeMetadata, 1, 0);
    }
    purged += purge_free_records(region_);
    ASSERT_TRUE(purged_records_are_valid(region_));
    for (const Span* span : used)
      ASSERT_EQ(span->first_page, static_cast<uint32_t>(span - region_->spans));
  }
  EXPECT_GT(purged, 20 * kPageBytes);
}

TEST_F(PageMap, ARefusedHeaderLeavesTheDirectoryEmptyAndNothingReserved) {
  const uintptr_t base = reinterpret_cast<uintptr_t>(os::reserve(kRegionBytes, kRegionBytes));
  const size_t before = fake::metadata_bytes();
  fake::fail(fake::Call::kReserveMetadata, 1, 1);
  EXPECT_EQ(add_region(base), nullptr);
  fake::fail(fake::Call::kCommitMetadata, 1, 1);
  EXPECT_EQ(add_region(base), nullptr);
  expect_nothing_at(base);
  EXPECT_EQ(fake::metadata_bytes(), before);
  EXPECT_NE(add_region(base), nullptr);
}

class PageMapGranularity : public testing::TestWithParam<size_t> {};

TEST_P(PageMapGranularity, EveryRecordCanBeWrittenWithLargePages) {
  fake::reset();
  fake::set_granularity(GetParam());
  Region* region = add_region(reinterpret_cast<uintptr_t>(os::reserve(kRegionBytes, kRegionBytes)));
  ASSERT_NE(region, nullptr);
  for (unsigned i = 0; i < kPagesPerRegion; ++i) {
    Span* span = take_span_record(region);
    ASSERT_NE(span, nullptr);
    span->heap = 1;
  }
  region->page_span[kPagesPerRegion - 1] = 1;
  region->slabs[kSlabsPerRegion - 1].kind = RunKind::kLarge;
  EXPECT_GT(metadata_bytes(region), kPagesPerRegion * sizeof(Span));
}

INSTANTIATE_TEST_SUITE_P(Bytes, PageMapGranularity, testing::Values(4096, 16384, 65536));

}  // namespace
}  // namespace loam
