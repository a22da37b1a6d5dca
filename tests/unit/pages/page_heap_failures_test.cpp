// The page heap on a system that refuses. After every refusal all structures are valid, nothing is
// lost, and the next call works as soon as the system allows it.
#include "pages/page_heap.h"

#include "fake_system/fake.h"
#include "pages/page_heap_model.h"

namespace loam {
namespace {

namespace fake = os::fake;
using fake::Call;
using test::PageHeapModel;

class PageHeapFailures : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }

  /// Makes every kind of call, any of which may be refused. Returns how many allocations were
  /// refused.
  static int work(PageHeapModel& model) {
    int refused = 0;
    const auto count = [&](uintptr_t address) {
      refused += address == 0;
      model.check();
      return address;
    };
    std::vector<uintptr_t> runs;
    for (int i = 0; i < 6; ++i) {
      runs.push_back(count(model.span(8, 3, 8 * kPageBytes)));
      runs.push_back(count(model.large(300, 1, 300 * kPageBytes)));
    }
    runs.push_back(count(model.large(5 * kPagesPerSlab, 1, 100)));
    runs.push_back(count(model.large(1, kPagesPerRegion / 4, 100)));
    for (size_t i = 0; i < runs.size(); i += 2) {
      if (runs[i] != 0) model.free(runs[i]);
      model.check();
    }
    model.heap().purge_all();
    model.check();
    model.check_contents();
    for (int i = 0; i < 6; ++i) count(model.large(kMaxRun.count, 1, 1));
    model.free_all();
    model.check();
    model.heap().purge_all();
    model.check();
    return refused;
  }
};

TEST_F(PageHeapFailures, NothingIsRefusedWhenTheSystemGivesEverything) {
  PageHeapModel model;
  EXPECT_EQ(work(model), 0);
}

TEST_F(PageHeapFailures, EachSingleRefusalLeavesTheHeapValidAndUseful) {
  PageHeapModel sizing;
  work(sizing);
  const uint64_t calls = fake::fallible_calls();
  ASSERT_GT(calls, 20u);
  for (uint64_t nth = 1; nth <= calls; ++nth) {
    SCOPED_TRACE(testing::Message() << "call " << nth << " of " << calls << " refused");
    fake::reset();
    PageHeapModel model;
    fake::fail_any(nth);
    EXPECT_LE(work(model), 1);
    fake::clear_failures();
    EXPECT_EQ(work(model), 0);
    EXPECT_EQ(model.heap().stats().dirty.count, 0u);
    EXPECT_EQ(fake::resident_bytes(), 0u);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(PageHeapFailures, EverythingRefusedFromACallOnLeavesTheHeapValid) {
  for (uint64_t nth = 1; nth <= 25; ++nth) {
    SCOPED_TRACE(testing::Message() << "everything refused from call " << nth << " on");
    fake::reset();
    PageHeapModel model;
    fake::fail_any(nth, fake::kForever);
    work(model);
    fake::clear_failures();
    EXPECT_EQ(work(model), 0);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(PageHeapFailures, EachKindRefusedForEverIsANullAndNothingWorse) {
  for (const Call call :
       {Call::kReserve, Call::kReserveMetadata, Call::kCommit, Call::kCommitMetadata}) {
    SCOPED_TRACE(testing::Message() << "kind " << unsigned(call));
    fake::reset();
    PageHeapModel model;
    fake::fail(call);
    EXPECT_EQ(model.span(1), 0u);
    EXPECT_EQ(model.large(1), 0u);
    EXPECT_EQ(model.large(kMaxRun.count), 0u);
    model.check();
    EXPECT_EQ(fake::committed_bytes(), 0u);
    fake::clear_failures();
    EXPECT_NE(model.span(1), 0u);
    model.check();
  }
}

TEST_F(PageHeapFailures, AHeaderThatIsRefusedLeavesNoAddressSpaceBehind) {
  PageHeapModel model;
  fake::fail(Call::kReserveMetadata);
  EXPECT_EQ(model.span(1), 0u);
  EXPECT_EQ(fake::reserved_bytes(), 0u);
}

TEST_F(PageHeapFailures, ARefusedPurgeIsCountedAndTriedAgain) {
  PageHeapModel model;
  for (int i = 0; i < 10; ++i) {
    model.large(100, 1, 100 * kPageBytes);
  }
  model.free_all();
  fake::fail(Call::kPurge);
  EXPECT_EQ(model.heap().purge_all().count, 0u);
  model.check();
  EXPECT_GT(model.heap().stats().refused_calls, 0u);
  EXPECT_EQ(model.heap().stats().dirty.count, 1000u);
  fake::clear_failures();
  EXPECT_EQ(model.heap().purge_all().count, 1000u);
  EXPECT_EQ(fake::resident_bytes(), 0u);
  model.check();
}

TEST_F(PageHeapFailures, TicksGetThroughWhenSomePurgesAreRefused) {
  PageHeapModel model;
  for (int i = 0; i < 20; ++i) model.large(kPagesPerSlab, 1, kSlabBytes);
  model.free_all();
  fake::fail(Call::kPurge, 1, 5);
  for (int i = 0; i < 2000; ++i) {
    fake::advance_ms(8);
    model.heap().tick();
  }
  EXPECT_LE(model.heap().stats().dirty, PurgePolicy::kFloor);
  model.check();
}

TEST_F(PageHeapFailures, UnderATightLimitTheHeapUsesWhatItCanGet) {
  // The header takes 32 MiB of address space; the rest holds a few dozen slabs.
  fake::limit_reserved(size_t{256} << 20);
  PageHeapModel model;
  size_t got = 0;
  while (model.large(100, 1, 1) != 0) ++got;
  model.check();
  EXPECT_LE(model.heap().stats().reserved_bytes, size_t{256} << 20);
  EXPECT_GE(got * 100 * kPageBytes, size_t{96} << 20) << "less than half of what the limit allows";
  while (model.span(1) != 0) {
  }
  model.check();
  model.free_all();
  model.check();
  EXPECT_NE(model.span(1), 0u);
}

TEST_F(PageHeapFailures, IdleAddressSpaceGoesBackAndTheHeapGoesOn) {
  PageHeapModel model;
  for (int i = 0; i < 100; ++i) model.large(kMaxRun.count, 1, kPageBytes);
  const uintptr_t kept = model.runs().begin()->first;
  while (model.runs().size() > 1) model.free(model.runs().rbegin()->first);
  const size_t before = model.heap().stats().reserved_bytes;
  EXPECT_TRUE(model.heap().release_idle_extents());
  model.check();
  EXPECT_LT(model.heap().stats().reserved_bytes, before);
  EXPECT_EQ(fake::reserved_bytes(), model.heap().stats().reserved_bytes);
  EXPECT_TRUE(fake::is_committed(kept, kMaxRun.bytes()));
  EXPECT_FALSE(model.heap().release_idle_extents()) << "nothing more is idle";
  model.free(kept);
  EXPECT_TRUE(model.heap().release_idle_extents());
  EXPECT_EQ(fake::reserved_bytes(), 0u);
  model.check();
  fake::reuse_addresses(true);  // the regions' headers still exist, and serve again
  for (int i = 0; i < 100; ++i) ASSERT_NE(model.large(kMaxRun.count, 1, kPageBytes), 0u);
  model.check();
  model.free_all();
  model.check();
}

TEST_F(PageHeapFailures, TheFreeEndsOfAnExtentGoAndWhatLivesStays) {
  PageHeapModel model;
  for (int i = 0; i < 12; ++i) model.large(kMaxRun.count, 1, kPageBytes);
  const uintptr_t kept = std::next(model.runs().begin(), 5)->first;
  while (model.runs().size() > 1) {
    const uintptr_t last = model.runs().rbegin()->first;
    model.free(last != kept ? last : model.runs().begin()->first);
  }
  EXPECT_TRUE(model.heap().release_idle_extents());
  model.check();
  EXPECT_EQ(model.heap().stats().reserved_bytes, kMaxRun.bytes());
  EXPECT_EQ(fake::reserved_bytes(), kMaxRun.bytes());
  EXPECT_TRUE(fake::is_committed(kept, kMaxRun.bytes()));
  fake::reuse_addresses(true);  // a new extent may lie in the hole
  for (int i = 0; i < 12; ++i) ASSERT_NE(model.large(kMaxRun.count, 1, kPageBytes), 0u);
  model.check();
  model.free_all();
  model.check();
}

TEST_F(PageHeapFailures, AddressesThatTheMapCannotNameAreNotUsed) {
  fake::place_next_at(uintptr_t{1} << kAddressBits);
  PageHeapModel model;
  EXPECT_EQ(model.span(1), 0u);
  EXPECT_EQ(model.large(kMaxRun.count), 0u);
  EXPECT_EQ(fake::reserved_bytes(), 0u) << "what could not be used goes back";
  model.check();
  fake::place_next_at(0);
  EXPECT_NE(model.span(1), 0u);
}

TEST_F(PageHeapFailures, ExtentsOfOneRegionWorkTogether) {
  // A system that gives parts of the same gibibyte, one after the other.
  const size_t piece = size_t{64} << 20;
  fake::limit_reserved(kHeaderAlignment + piece + piece / 2);
  const uintptr_t base = kRegionBytes * 30'000;
  fake::place_next_at(base);
  PageHeapModel model;
  ASSERT_NE(model.large(100), 0u);
  EXPECT_EQ(model.heap().stats().reserved_bytes, piece);
  fake::limit_reserved(SIZE_MAX);
  while (model.heap().stats().reserved_bytes == piece) ASSERT_NE(model.large(500), 0u);
  model.check();
  EXPECT_EQ(fake::calls(Call::kReserveMetadata) - fake::refusals(Call::kReserveMetadata), 1u)
      << "one header serves both";
  EXPECT_EQ(region_at(base), region_at(base + piece));
  model.free_all();
  model.check();
  EXPECT_NE(model.large(kMaxRun.count), 0u);
  model.check();
}

}  // namespace
}  // namespace loam
