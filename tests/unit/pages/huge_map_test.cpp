// The table of blocks with a mapping of their own against a map of the standard library.
#include "pages/huge_map.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "fake_system/fake.h"
#include "must_run.h"
#include "os/os.h"
#include "pages/page_heap.h"
#include "random.h"

namespace loam {
namespace {

namespace fake = os::fake;
using fake::Call;

class HugeMapTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    new (&page_heap) PageHeap;  // the process's own: it may keep mappings of an earlier test
  }

  uintptr_t allocate(size_t bytes, size_t alignment = kPageBytes) {
    bool zero = true;  // no kept mapping
    void* const block = map.allocate(bytes, alignment, 0, &zero);
    EXPECT_TRUE(block == nullptr || zero);
    return reinterpret_cast<uintptr_t>(block);
  }
  /// A block of one page at exactly this address.
  void allocate_at(uintptr_t address) {
    fake::place_next_at(address);
    ASSERT_EQ(allocate(kPageBytes), address);
  }

  HugeMap map;
};

TEST_F(HugeMapTest, AnEmptyMapKnowsNothing) {
  EXPECT_EQ(map.find(0).address, 0u);
  EXPECT_EQ(map.find(4096).address, 0u);
  EXPECT_FALSE(map.free(4096));
  EXPECT_EQ(map.resize(4096, 10, false), nullptr);
  EXPECT_EQ(map.totals().blocks, 0u);
  EXPECT_TRUE(map.is_valid());
}

TEST_F(HugeMapTest, AWalkMeetsEveryBlockThatStaysOnceWhateverElseGoes) {
  test::Random random = test::seeded(3);
  LOAM_TRACE_SEED(random);
  std::vector<uintptr_t> stay, go;
  for (int i = 0; i < 200; ++i) (i % 2 == 0 ? stay : go).push_back(allocate(kPageBytes));
  std::sort(stay.begin(), stay.end());
  std::vector<uintptr_t> met;
  uintptr_t last = 0;
  while ((last = map.after(last).address) != 0) {
    if (std::binary_search(stay.begin(), stay.end(), last)) met.push_back(last);
    if (go.empty()) continue;
    // Entries of the table move when other entries are removed.
    std::swap(go[random.below(go.size())], go.back());
    EXPECT_TRUE(map.free(go.back()));
    go.pop_back();
  }
  EXPECT_EQ(met, stay);
}

TEST_F(HugeMapTest, RandomOperationsAgreeWithAMap) {
  test::MustRun moved{"a block moves"};
  test::Random random = test::seeded(1);
  LOAM_TRACE_SEED(random);
  struct Known {
    size_t mapped, requested;
  };
  std::map<uintptr_t, Known> model;
  size_t mapped_bytes = 0, requested_bytes = 0;
  const auto pick = [&] {
    auto it = model.begin();
    std::advance(it, static_cast<long>(random.below(model.size())));
    return it;
  };
  for (int step = 0; step < 8000; ++step) {
    const unsigned what = random.between(0, 99);
    // Grows past several doublings of the table, then shrinks.
    if (model.empty() || what < (step < 5000 ? 50u : 25u)) {
      const size_t bytes = 1 + random.below(size_t{1} << random.between(1, 36));
      const size_t alignment = size_t{1} << random.below(31);
      const uintptr_t block = allocate(bytes, alignment);
      ASSERT_NE(block, 0u);
      ASSERT_EQ(block % std::max(alignment, kPageBytes), 0u);
      model[block] = {round_up(bytes, kPageBytes), bytes};
      mapped_bytes += round_up(bytes, kPageBytes);
      requested_bytes += bytes;
    } else if (what < 65) {
      const auto it = pick();
      ASSERT_TRUE(map.free(it->first));
      ASSERT_FALSE(map.free(it->first)) << "a second time";
      mapped_bytes -= it->second.mapped;
      requested_bytes -= it->second.requested;
      model.erase(it);
    } else if (what < 85) {
      const auto it = pick();
      const uintptr_t before = it->first;
      const size_t bytes = 1 + random.below(size_t{1} << random.between(1, 36));
      const bool in_place = random.chance(50);
      const uintptr_t after = reinterpret_cast<uintptr_t>(map.resize(before, bytes, in_place));
      ASSERT_TRUE(in_place ? after == before || after == 0 : after != 0);
      if (after != 0) {
        mapped_bytes += round_up(bytes, kPageBytes) - it->second.mapped;
        requested_bytes += bytes - it->second.requested;
        model.erase(it);
        model[after] = {round_up(bytes, kPageBytes), bytes};
        if (after != before) {
          moved.ran();
          ASSERT_EQ(map.find(before).address, 0u);
        }
      }
    } else {
      const auto it = pick();
      const HugeMap::Entry entry = map.find(it->first);
      ASSERT_EQ(entry.address, it->first);
      ASSERT_EQ(entry.mapped, it->second.mapped);
      ASSERT_EQ(entry.requested, it->second.requested);
      ASSERT_EQ(map.find(it->first + kPageBytes).address != 0,
                model.count(it->first + kPageBytes) != 0);
    }
    const HugeMap::Totals totals = map.totals();
    ASSERT_EQ(totals.blocks, model.size());
    ASSERT_EQ(totals.mapped_bytes, mapped_bytes);
    ASSERT_EQ(totals.requested_bytes, requested_bytes);
    ASSERT_EQ(fake::reserved_bytes(), mapped_bytes) << "a mapping leaked or vanished";
    if (step % 50 == 0) {
      ASSERT_TRUE(map.is_valid());
    }
  }
}

// The first place at which the table looks for an address, at its initial size. It repeats
// HugeMap::home(). If that changes, the test below only becomes a plain one.
size_t home_of(uintptr_t address) {
  return ((address >> kPageShift) * 0x9e3779b97f4a7c15u) >> (64 - 9);
}

TEST_F(HugeMapTest, DeletionClosesHolesAcrossTheEndOfTheTable) {
  // Addresses whose homes are the last places, so that their probes wrap around to the first ones,
  // and some whose homes are the first places, so that the two chains mix.
  std::vector<uintptr_t> late, early;
  for (uintptr_t page = uintptr_t{1} << 32; late.size() < 6 || early.size() < 3; ++page) {
    const uintptr_t address = page << kPageShift;
    const size_t home = home_of(address);
    if (home >= 509 && late.size() < 6) late.push_back(address);
    if (home <= 1 && early.size() < 3) early.push_back(address);
  }
  std::vector<uintptr_t> all = late;
  all.insert(all.end(), early.begin(), early.end());
  std::sort(all.begin(), all.end());
  test::Random random = test::seeded(2);
  LOAM_TRACE_SEED(random);
  for (int round = 0; round < 300; ++round) {
    std::vector<uintptr_t> order = all;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (const uintptr_t address : order) allocate_at(address);
    ASSERT_TRUE(map.is_valid());
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (size_t gone = 0; gone < order.size(); ++gone) {
      ASSERT_TRUE(map.free(order[gone]));
      ASSERT_TRUE(map.is_valid()) << "round " << round;
      for (size_t i = 0; i < order.size(); ++i) {
        ASSERT_EQ(map.find(order[i]).address != 0, i > gone) << "round " << round;
      }
    }
  }
}

TEST_F(HugeMapTest, TheOldTableGoesBackWhenItDoubles) {
  for (int i = 0; i < 5000; ++i) ASSERT_NE(allocate(kPageBytes), 0u);
  EXPECT_TRUE(map.is_valid());
  EXPECT_EQ(fake::calls(Call::kReserveMetadata), fake::calls(Call::kReleaseMetadata) + 1);
}

// An overrun of the memory beside the table cannot reach it.
TEST_F(HugeMapTest, TheTableLiesBetweenInaccessiblePages) {
  fake::clear_log();
  for (int i = 0; i < 2000; ++i) ASSERT_NE(allocate(kPageBytes), 0u);
  fake::Record reserved{}, committed{};
  for (const fake::Record& record : fake::log()) {
    if (record.call == Call::kReserveMetadata) reserved = record;
    if (record.call == Call::kCommitMetadata) committed = record;
  }
  ASSERT_NE(reserved.address, 0u);
  EXPECT_EQ(committed.address, reserved.address + os::granularity());
  EXPECT_EQ(committed.bytes + 2 * os::granularity(), reserved.bytes);
}

TEST_F(HugeMapTest, ARefusedMappingIsANull) {
  fake::fail(Call::kMapBlock, 1, 1);
  EXPECT_EQ(allocate(1 << 20), 0u);
  EXPECT_EQ(map.totals().blocks, 0u);
  EXPECT_NE(allocate(1 << 20), 0u);
}

TEST_F(HugeMapTest, ARefusedTableLeavesNoMappingBehind) {
  fake::fail(Call::kReserveMetadata, 1, 1);
  EXPECT_EQ(allocate(1 << 20), 0u);
  fake::fail(Call::kCommitMetadata, 1, 1);
  EXPECT_EQ(allocate(1 << 20), 0u);
  EXPECT_EQ(fake::reserved_bytes(), 0u);
  EXPECT_TRUE(map.is_valid());
  std::vector<uintptr_t> blocks;
  for (int i = 0; i < 384; ++i) blocks.push_back(allocate(kPageBytes));  // 3/4 of the first table
  fake::fail(Call::kReserveMetadata);
  EXPECT_EQ(allocate(kPageBytes), 0u);
  EXPECT_TRUE(map.is_valid());
  for (const uintptr_t block : blocks) EXPECT_EQ(map.find(block).address, block);
  // A full table must not keep a block from being resized or freed.
  EXPECT_NE(map.resize(blocks[7], 10 * kPageBytes, false), nullptr);
  EXPECT_TRUE(map.free(blocks[9]));
  EXPECT_NE(allocate(kPageBytes), 0u);
}

TEST_F(HugeMapTest, ARefusedResizeLeavesTheBlockAsItWas) {
  const uintptr_t block = allocate(1 << 20);
  fake::fail(Call::kRemapBlock, 1, 1);
  EXPECT_EQ(map.resize(block, 1 << 21, false), nullptr);
  EXPECT_EQ(map.find(block).mapped, size_t{1} << 20);
  EXPECT_EQ(map.find(block).requested, size_t{1} << 20);
  EXPECT_TRUE(map.is_valid());
}

TEST_F(HugeMapTest, SizesThatNoMappingCanHaveAreRefused) {
  EXPECT_EQ(allocate(SIZE_MAX), 0u);
  EXPECT_EQ(allocate(PTRDIFF_MAX), 0u);
  EXPECT_EQ(allocate(1, size_t{1} << 63), 0u);
  const uintptr_t block = allocate(1 << 20);
  EXPECT_EQ(map.resize(block, SIZE_MAX, false), nullptr);
  EXPECT_EQ(map.resize(block, PTRDIFF_MAX, false), nullptr);
  EXPECT_EQ(map.find(block).mapped, size_t{1} << 20);
}

TEST_F(HugeMapTest, AResizeWithinTheLastPageMovesNothing) {
  const uintptr_t block = allocate(kPageBytes + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(map.resize(block, 2 * kPageBytes, true)), block);
  EXPECT_EQ(fake::calls(Call::kRemapBlock), 0u);
  EXPECT_EQ(map.totals().requested_bytes, 2 * kPageBytes);
}

TEST_F(HugeMapTest, LargePagesRoundTheMapping) {
  fake::set_granularity(65536);
  const uintptr_t block = allocate(1, 16);
  EXPECT_EQ(map.find(block).mapped, 65536u);
  EXPECT_EQ(block % 65536, 0u);
  EXPECT_NE(map.resize(block, 65537, false), nullptr);
  EXPECT_EQ(map.totals().mapped_bytes, 131072u);
}

}  // namespace
}  // namespace loam
