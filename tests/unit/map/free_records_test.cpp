// The set of free records against std::set.
#include "map/free_records.h"

#include <memory>
#include <set>

#include <gtest/gtest.h>

#include "random.h"

namespace loam {
namespace {

struct Records {
  FreeRecords free{};
  FreeRecords::Bits bits{};
};

TEST(FreeRecords, EveryNumberIsHandedOutAlone) {
  const auto records = std::make_unique<Records>();
  EXPECT_TRUE(records->free.empty());
  for (uint32_t number = 1; number <= kPagesPerRegion; ++number) {
    records->free.add(records->bits, number);
    ASSERT_FALSE(records->free.empty());
    ASSERT_EQ(records->free.take(records->bits), number);
    ASSERT_TRUE(records->free.empty());
  }
  EXPECT_TRUE(records->free.is_valid(records->bits));
}

TEST(FreeRecords, TheLowestIsHandedOutWhateverElseIsFree) {
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  const auto records = std::make_unique<Records>();
  std::set<uint32_t> model;
  for (int step = 0; step < 200'000; ++step) {
    // Adds many and few in turn, near each other and anywhere, so that words and groups fill and
    // empty.
    if (model.empty() || random.chance(step / 1000 % 2 == 0 ? 80 : 20)) {
      const uint32_t most = step / 4000 % 2 == 0 ? kPagesPerRegion : 300;
      const uint32_t number = 1 + static_cast<uint32_t>(random.below(most));
      if (model.insert(number).second) records->free.add(records->bits, number);
    } else {
      ASSERT_EQ(records->free.take(records->bits), *model.begin());
      model.erase(model.begin());
    }
    ASSERT_EQ(records->free.empty(), model.empty());
    if (step % 500 == 0) {
      ASSERT_TRUE(records->free.is_valid(records->bits));
    }
  }
}

}  // namespace
}  // namespace loam
