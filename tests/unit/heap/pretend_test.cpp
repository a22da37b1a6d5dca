// The whole heap on the pretended system, which can refuse memory, and where options can be set.
#include <cerrno>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fake_system/fake.h"
#include "heap/equations.h"
#include "heap/heap.h"
#include "heap/options.h"
#include "os/fatal.h"
#include "os/os.h"
#include "pages/huge_map.h"
#include "pages/page_heap.h"

namespace loam {
namespace {

namespace fake = os::fake;
using fake::Call;
using test::totals;

class PretendHeap : public testing::Test {
 protected:
  // Earlier tests left free memory, and a heap that keeps freed mappings until one was kept in
  // vain.
  void SetUp() override {
    heap::free(heap::allocate(2 * kMaxRun.bytes()));
    fake::advance_ms(2 * IdleMappings::kKeptMs);
    page_heap.tick();
    static_cast<void>(page_heap.release_idle_extents());
  }
  void TearDown() override {
    fake::clear_failures();
    set_corruption_policy(CorruptionPolicy::kAbort);
    EXPECT_TRUE(heap::is_valid());
    heap::compact();
    EXPECT_EQ(page_heap.stats().used.count, 0u);
    EXPECT_EQ(huge_map.totals().blocks, 0u);
  }
};

TEST_F(PretendHeap, TerabytesOfBlocksAreServed) {
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(heap::allocate(size_t{32} << 30));  // 2 TiB
  for (int i = 0; i < 8192; ++i)
    blocks.push_back(heap::allocate(size_t{20} << 20));  // 160 GiB in regions
  for (void* block : blocks) ASSERT_NE(block, nullptr);
  EXPECT_TRUE(heap::is_valid());
  for (void* block : blocks) heap::free(block);
}

TEST_F(PretendHeap, EveryRefusalIsANullWithErrnoAndNothingIsLost) {
  void* small = heap::allocate(100);
  void* large = heap::allocate(100'000);
  void* huge = heap::allocate(size_t{64} << 20);
  const Snapshot before = totals();
  for (unsigned call = 0; call < fake::kCalls; ++call) fake::fail(Call(call));
  std::vector<void*> got;
  bool refused = false;
  for (int i = 0; i < 20'000 && !refused; ++i) {
    errno = 0;
    void* block = heap::allocate(30'000);
    refused = block == nullptr;
    if (!refused) got.push_back(block);
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(heap::allocate(size_t{1} << 30), nullptr);
  EXPECT_EQ(heap::allocate_aligned(size_t{1} << 30, 1), nullptr);
  EXPECT_EQ(heap::reallocate(huge, size_t{128} << 20), nullptr);
  EXPECT_EQ(heap::usable_size(huge), size_t{64} << 20);
  EXPECT_TRUE(heap::is_valid());
  for (void* block : got) heap::free(block);
  heap::compact();
  fake::clear_failures();
  const Snapshot after = totals();
  EXPECT_EQ(after.live_bytes(), before.live_bytes());
  EXPECT_GT(after.refused_calls, before.refused_calls);
  EXPECT_NE(small = heap::reallocate(small, 110), nullptr);
  heap::free(small);
  heap::free(large);
  heap::free(huge);
}

TEST_F(PretendHeap, ABlockThatGetsShorterStaysWhereNoMemoryIsLeft) {
  void* const block = heap::allocate(30'000);
  for (unsigned call = 0; call < fake::kCalls; ++call) fake::fail(Call(call));
  std::vector<void*> got;
  for (const size_t bytes : {30'000u, 9'000u}) {
    while (void* more = heap::allocate(bytes)) got.push_back(more);
  }
  EXPECT_EQ(heap::reallocate(block, 9'000), block);
  fake::clear_failures();
  heap::free(block);
  for (void* more : got) heap::free(more);
}

TEST_F(PretendHeap, WithoutARegionALargeBlockGetsItsOwnMapping) {
  fake::fail(Call::kReserve);
  fake::fail(Call::kCommit);
  std::vector<void*> blocks;
  for (int i = 0; i < 200; ++i) {
    blocks.push_back(heap::allocate(size_t{30} << 20));
    ASSERT_NE(blocks.back(), nullptr) << "a mapping could still be had";
  }
  EXPECT_GT(huge_map.totals().blocks, 0u);
  for (void* block : blocks) heap::free(block);
}

// A copy would end the test, because pretended addresses have no memory.
TEST_F(PretendHeap, ALongRunThatGrowsIsMovedAndNotCopied) {
  constexpr size_t kBytes = size_t{9} << 20;
  void* const neighbour = heap::allocate(kBytes);
  void* const block = heap::allocate(kBytes);
  fake::touch(reinterpret_cast<uintptr_t>(block), kBytes);
  const size_t resident = fake::resident_bytes();
  const PageStats before = page_heap.stats();
  void* const grown = heap::reallocate(block, kBytes + 5000);
  ASSERT_NE(grown, nullptr);
  ASSERT_NE(grown, block);
  EXPECT_EQ(fake::written_bytes(reinterpret_cast<uintptr_t>(grown), kBytes + 5000), kBytes);
  EXPECT_EQ(fake::resident_bytes(), resident);
  EXPECT_EQ(heap::usable_size(grown), Pages::covering(kBytes + 5000).bytes());
  const PageStats after = page_heap.stats();
  EXPECT_EQ(after.used.bytes(), before.used.bytes() - kBytes);
  EXPECT_EQ(after.dirty.bytes(), before.dirty.bytes()) << "its place holds no memory";
  EXPECT_EQ(after.large_blocks, before.large_blocks - 1);
  EXPECT_TRUE(heap::is_valid());
  // The next block gets its address, with fresh pages.
  const uint64_t fresh = after.fresh_pages;
  void* const next = heap::allocate(kBytes);
  EXPECT_EQ(next, block);
  EXPECT_EQ(page_heap.stats().fresh_pages, fresh + Pages::covering(kBytes).count);
  for (void* each : {neighbour, grown, next}) heap::free(each);
}

// A foreign mapping takes the place of a run that moved. The heap never touches that place again:
// the pretended system ends the test if it does.
void lose_a_place() {
  constexpr size_t kBytes = size_t{9} << 20;
  void* const block = heap::allocate(kBytes);
  fake::touch(reinterpret_cast<uintptr_t>(block), kBytes);
  fake::fail(Call::kKeepPlace, 1, 1);
  void* const grown = heap::reallocate(block, kBytes + 5000);
  ASSERT_NE(grown, nullptr);
  ASSERT_NE(grown, block);
  EXPECT_EQ(fake::written_bytes(reinterpret_cast<uintptr_t>(grown), kBytes + 5000), kBytes);
  EXPECT_EQ(heap::usable_size(block), 0u) << "no block is there";
  EXPECT_TRUE(heap::is_valid());
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(heap::allocate(kBytes));
    fake::touch(reinterpret_cast<uintptr_t>(blocks.back()), kBytes);
    const char* const begin = static_cast<char*>(blocks.back());
    EXPECT_TRUE(begin + kBytes <= block || begin >= static_cast<char*>(block) + kBytes);
  }
  for (void* each : blocks) heap::free(each);
  heap::free(grown);
  heap::compact();
  EXPECT_EQ(page_heap.stats().used, Pages::covering(kBytes)) << "its pages stay used";
  EXPECT_TRUE(heap::is_valid());
}

TEST_F(PretendHeap, APlaceThatAForeignMappingTookIsLost) {
  // In a process of its own, because the pages stay used.
  const auto run = [] {
    lose_a_place();
    _exit(HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST_F(PretendHeap, ARunThatCannotMoveGrowsWhereItStands) {
  constexpr size_t kBytes = size_t{9} << 20;
  void* const block = heap::allocate(kBytes);
  fake::fail(Call::kMoveToBlock);
  fake::fail(Call::kMapBlock);
  EXPECT_EQ(heap::reallocate(block, kBytes + 5000), block);
  EXPECT_EQ(heap::usable_size(block), Pages::covering(kBytes + 5000).bytes());
  EXPECT_EQ(huge_map.totals().blocks, 0u);
  heap::free(block);
}

TEST_F(PretendHeap, ShortRunsAreNotMoved) {
  const size_t bytes = HugeMap::kLeastMoved.bytes();
  void* const shorter = heap::allocate(bytes - kPageBytes);
  void* const block = heap::allocate(bytes);
  EXPECT_EQ(huge_map.take_over(span_at(reinterpret_cast<uintptr_t>(shorter)), size_t{3} << 20, 0),
            nullptr);
  void* const moved =
      huge_map.take_over(span_at(reinterpret_cast<uintptr_t>(block)), size_t{3} << 20, 0);
  EXPECT_NE(moved, nullptr);
  EXPECT_TRUE(heap::is_valid());
  heap::free(moved);
  heap::free(shorter);
}

// The memory of a freed run is used again just as that of a freed mapping.
TEST_F(PretendHeap, WhereMappingsAreKeptRunsAreNotMoved) {
  constexpr size_t kBytes = size_t{9} << 20;
  void* const block = heap::allocate(kBytes);
  Span* const run = span_at(reinterpret_cast<uintptr_t>(block));
  heap::free(heap::allocate(size_t{64} << 20));
  EXPECT_EQ(huge_map.take_over(run, kBytes + 5000, 0), nullptr)
      << "as long a mapping went a moment ago";
  heap::free(block);
}

TEST_F(PretendHeap, TheLargestAlignmentsAreServedForNoBytesToo) {
  for (const size_t alignment : {size_t{1} << 29, size_t{1} << 30, size_t{1} << 33}) {
    for (const size_t bytes : {size_t{0}, size_t{1}}) {
      void* block = heap::allocate_aligned(alignment, bytes);
      ASSERT_NE(block, nullptr) << bytes << " at " << alignment;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
      heap::free(block);
    }
  }
}

TEST_F(PretendHeap, OptionsAreReadOnceAndAWrongOneIsReported) {
  fake::set_option("LOAM_ON_CORRUPTION", "report");
  apply_options(&heap::plain_heap);
  fake::take_errors();
  heap::free(reinterpret_cast<void*>(0x1230));  // would end the process otherwise
  EXPECT_NE(fake::take_errors().find("0x1230"), std::string::npos);
  fake::set_option("LOAM_ON_CORRUPTION", "maybe");
  apply_options(&heap::plain_heap);
  const std::string complaint = fake::take_errors();
  EXPECT_EQ(complaint.rfind("loam: ", 0), 0u);
  EXPECT_NE(complaint.find("LOAM_ON_CORRUPTION"), std::string::npos);
  EXPECT_NE(complaint.find("abort|report"), std::string::npos) << complaint;
  EXPECT_EQ(complaint.find('\n'), complaint.size() - 1) << complaint;
  fake::set_option("LOAM_ON_CORRUPTION", nullptr);
}

TEST_F(PretendHeap, AnOptionThatProtectsIsNotLostByAMistakeInTyping) {
  set_corruption_policy(CorruptionPolicy::kReport);
  for (const char* value : {"reports", "1", "abort,report", "off"}) {
    fake::set_option("LOAM_ON_CORRUPTION", value);
    apply_options(&heap::plain_heap);
    EXPECT_NE(fake::take_errors().find("using abort"), std::string::npos) << value;
  }
  for (const char* value : {" report", "REPORT", "report\n", ""}) {
    fake::set_option("LOAM_ON_CORRUPTION", value);
    apply_options(&heap::plain_heap);
    EXPECT_EQ(fake::take_errors().empty(), *value != '\0') << value;
  }
  fake::set_option("LOAM_ON_CORRUPTION", nullptr);
}

TEST_F(PretendHeap, EveryOptionHasANameAPrefixAndAMeaning) {
  for (const Option& option : kOptions) {
    EXPECT_EQ(std::string(option.name).rfind("LOAM_", 0), 0u) << option.name;
    EXPECT_NE(std::string(option.meaning), "");
    EXPECT_NE(std::string(option.values).find(option.initial), std::string::npos) << option.name;
  }
}

TEST_F(PretendHeap, WhereAPartGoesBackWhoAskedForHugePagesHasSmallOnes) {
  fake::set_option("LOAM_HUGE_PAGES", "on");
  apply_options(&heap::plain_heap);
  fake::set_option("LOAM_HUGE_PAGES", nullptr);
  EXPECT_TRUE(page_heap.huge_pages().is_always());
  std::vector<void*> blocks;
  for (size_t bytes = 0; bytes < size_t{64} << 20; bytes += 1024)
    blocks.push_back(heap::allocate(1024));
  // Pages between live blocks are purged, while use falls and in the end. The slab must be told
  // first, or the system would fill the gaps.
  fake::clear_log();
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i % 16 != 0) heap::free(blocks[i]);
  }
  heap::compact();
  std::set<uintptr_t> told, purged;
  for (const fake::Record& call : fake::log()) {
    if (call.call == Call::kAdviseHuge) told.insert(call.address);
    if (call.call == Call::kPurge && told.count(call.address / kSlabBytes * kSlabBytes) == 0)
      purged.insert(call.address / kSlabBytes);
  }
  EXPECT_GE(told.size(), 24u);
  EXPECT_LE(purged.size(), 8u) << "those of the first 16 MiB, which have none";
  page_heap.huge_pages().use(HugeSurplus::When::kLargeHeaps);
  for (size_t i = 0; i < blocks.size(); i += 16) heap::free(blocks[i]);
}

TEST_F(PretendHeap, StartingHooksFork) {
  heap::start();
  const fake::ForkHooks hooks = fake::fork_hooks();
  ASSERT_NE(hooks.prepare, nullptr);
  hooks.prepare();
  EXPECT_TRUE(page_heap.mutex().is_locked());
  EXPECT_TRUE(huge_map.mutex().is_locked());
  hooks.parent();
  EXPECT_FALSE(page_heap.mutex().is_locked());
  EXPECT_FALSE(huge_map.mutex().is_locked());
  heap::free(heap::allocate(100));
}

}  // namespace
}  // namespace loam
