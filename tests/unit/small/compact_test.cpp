// Pages inside live spans that are purged, and how they are used again.
#include <map>

#include "fake_system/fake.h"
#include "os/os.h"
#include "small/bin_model.h"

namespace loam {
namespace {

namespace fake = os::fake;
using test::BinModel;
using test::Random;

class CompactTest : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    fake::reset();
    fake::set_granularity(GetParam());
  }
  size_t grain() const { return GetParam(); }
};

TEST_P(CompactTest, OnlyPagesWithoutALiveSlotGo) {
  for (const size_t bytes :
       {size_t{576}, size_t{1024}, size_t{3840}, size_t{4608}, size_t{32768}}) {
    Random random = test::seeded(bytes);
    LOAM_TRACE_SEED(random);
    BinModel model(class_for(bytes));
    model.take(40 * model.info().slots, true);
    model.give_live(model.pick(random, model.live().size() * 3 / 4));
    const size_t resident = fake::resident_bytes();
    const Pages purged = model.compact();
    model.check();
    model.check_contents();
    const BinStats stats = model.stats();
    EXPECT_EQ(stats.unbacked_pages, purged.count);
    EXPECT_EQ(resident - fake::resident_bytes(), purged.bytes());
    if (grain() == kPageBytes) {
      // Exactly: every page without a live slot is purged.
      std::map<uintptr_t, bool> touched;
      for (void* p : model.live()) {
        const uintptr_t begin = reinterpret_cast<uintptr_t>(p);
        for (uintptr_t page = begin >> kPageShift;
             page <= (begin + model.info().bytes - 1) >> kPageShift; ++page) {
          touched[page] = true;
        }
      }
      // (Empty spans were returned whole, and the page heap purges them.)
      model.pages().purge_all();
      EXPECT_EQ(fake::resident_bytes(), touched.size() * kPageBytes) << bytes << " bytes";
      if (bytes >= 1024) {
        EXPECT_GT(purged.count, 0u);
      }
    }
    model.give_live(model.pick(random, model.live().size()));
    model.compact();
    model.pages().purge_all();
    EXPECT_EQ(fake::resident_bytes(), 0u);
    EXPECT_EQ(model.stats().unbacked_pages, 0u);
    ASSERT_FALSE(HasFailure()) << bytes << " bytes";
  }
}

TEST_P(CompactTest, ASecondCompactFindsNothingMore) {
  Random random = test::seeded(2);
  LOAM_TRACE_SEED(random);
  BinModel model(class_for(2048));
  model.take(800, true);
  model.give_live(model.pick(random, 600));
  model.compact();
  const uint64_t calls = fake::calls(fake::Call::kPurge);
  EXPECT_EQ(model.compact().count, 0u);
  EXPECT_EQ(fake::calls(fake::Call::kPurge), calls);
}

TEST_P(CompactTest, TakingASlotClearsTheMarkOfItsPages) {
  Random random = test::seeded(3);
  LOAM_TRACE_SEED(random);
  BinModel model(class_for(2048));
  model.take(800, true);
  model.give_live(model.pick(random, 600));
  const size_t unbacked = model.compact().count;
  EXPECT_EQ(model.stats().unbacked_pages, unbacked);
  while (model.stats().free_slots != 0) model.take(1, true);
  EXPECT_EQ(model.stats().unbacked_pages, 0u);
  for (const auto& [span, used] : model.used()) EXPECT_EQ(span->unbacked_pages, 0u);
  model.check();
  model.check_contents();
}

TEST_P(CompactTest, ASpanThatGoesBackTellsWhichPagesAreUnbacked) {
  BinModel model(class_for(32768));  // four slots of eight pages
  model.take(8, true);
  std::vector<void*> slots = model.live();
  model.give_live({slots[0], slots[1], slots[2]});
  const Pages purged = model.compact();
  EXPECT_GT(purged.count, 0u);
  model.give_live({slots[3], slots[4], slots[5], slots[6], slots[7]});
  model.compact();
  EXPECT_EQ(model.stats().spans, 0u);
  EXPECT_EQ(model.pages().stats().dirty.count, 64 - purged.count);
  EXPECT_TRUE(model.pages().is_valid());
  model.pages().purge_all();
  EXPECT_EQ(fake::resident_bytes(), 0u);
}

TEST_P(CompactTest, ARefusedPurgeMarksNothing) {
  Random random = test::seeded(4);
  LOAM_TRACE_SEED(random);
  BinModel model(class_for(4096));
  model.take(400, true);
  model.give_live(model.pick(random, 300));
  fake::fail(fake::Call::kPurge);
  EXPECT_EQ(model.compact().count, 0u);
  EXPECT_EQ(model.stats().unbacked_pages, 0u);
  model.check();
  fake::clear_failures();
  if (grain() <= 16384) {
    EXPECT_GT(model.compact().count, 0u);
  }
  model.check_contents();
}

INSTANTIATE_TEST_SUITE_P(Granularity, CompactTest, testing::Values(4096, 16384, 65536));

}  // namespace
}  // namespace loam
