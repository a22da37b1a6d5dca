// Private heaps on the real system: the mistakes that a flush finds.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "os/fatal.h"
#include "os/os.h"
#include "private/heap_registry.h"

namespace loam {
namespace {

PrivateHeap* make(unsigned flags) {
  loam_heap_options options = LOAM_HEAP_OPTIONS_INIT;
  options.flags = flags;
  loam_status why = LOAM_OK;
  return heap_registry.create(options, &why);
}

void* allocate(PrivateHeap* heap, size_t bytes) {
  loam_status why = LOAM_OK;
  void* block = PrivateHeap::pop(heap, bytes);
  return block != nullptr ? block : heap->allocate(bytes, LOAM_ALIGNMENT, false, &why);
}

loam_status free(PrivateHeap* heap, void* block) {
  const Span* span = span_named_at(block);
  return span != nullptr && PrivateHeap::push(heap, span, block) ? LOAM_OK : heap->free(block);
}

// Two threads free one block at the same moment, and both see it live. The cache then holds it
// twice. The second one is reported and dropped when the block goes home, also from the middle of a
// run of neighbours. All other blocks are accepted.
TEST(PrivateHeap, ABlockThatTwoThreadsFreedAtOnceIsReportedWhenItGoesHome) {
  if (!os::barrier_all_threads()) GTEST_SKIP() << "without a barrier a heap has no caches";
  constexpr int kBlocks = 40, kTwice = 20;
  for (const unsigned flags :
       {unsigned(LOAM_HEAP_EAGER), unsigned(LOAM_HEAP_EAGER | LOAM_HEAP_EXACT_SIZES)}) {
    for (const bool upwards : {true, false}) {
      for (const bool at_once : {true, false}) {
        PrivateHeap* heap = make(flags);
        ASSERT_NE(heap, nullptr);
        std::vector<void*> blocks;
        for (int i = 0; i < kBlocks; ++i) blocks.push_back(allocate(heap, 64));
        const PrivateHeap::Found twice = heap->find(blocks[kTwice]);
        ASSERT_EQ(twice.status, LOAM_OK);
        const unsigned live = load_state(twice.state, heap->exact());
        const auto free_again = [&] {
          store_state(twice.state, heap->exact(), live);  // as the other thread saw it
          ASSERT_EQ(free(heap, blocks[kTwice]), LOAM_OK);
        };
        for (int i = 0; i < kBlocks; ++i) {
          void* block = blocks[static_cast<size_t>(upwards ? i : kBlocks - 1 - i)];
          ASSERT_EQ(free(heap, block), LOAM_OK);
          if (at_once && block == blocks[kTwice]) free_again();
        }
        if (!at_once) free_again();

        set_corruption_policy(CorruptionPolicy::kReport);
        testing::internal::CaptureStderr();
        size_t largest = 0;
        static_cast<void>(heap->compact(&largest));
        const std::string report = testing::internal::GetCapturedStderr();
        set_corruption_policy(CorruptionPolicy::kAbort);
        EXPECT_EQ(report.rfind("loam: double free in a private heap", 0), 0u) << report;
        EXPECT_EQ(report.find('\n'), report.size() - 1) << report;
        EXPECT_TRUE(heap->is_valid());
        loam_heap_summary summary{};
        heap->summary(&summary);
        EXPECT_EQ(summary.spans, 0u);
        EXPECT_EQ(heap_registry.destroy(heap), LOAM_OK);
      }
    }
  }
}

}  // namespace
}  // namespace loam
