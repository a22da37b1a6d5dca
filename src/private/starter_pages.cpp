// The first pages of a heap hold blocks of all classes side by side, so that a heap of a few KiB
// takes a page or two, and not one page a class. They are mixed runs (mixed_runs.cpp) of a page in
// pieces of 16 bytes. A heap that becomes busy, or has its share of them, goes on with spans of one
// class; existing blocks stay.
#include "private/private_heap.h"

namespace loam {

namespace {

// Larger blocks would leave holes too short for any block; a span of them is not much longer than
// the block.
constexpr size_t kLargestStarterBlock = 512;
// A heap with this many mixed runs makes no more of these pages. Chosen: with more classes in use
// than this, spans cost no more than the first-fit search here, which looks at four words.
constexpr uint32_t kMostStarters = 4;
// Blocks of one class before the heap's front end begins, as Windows counts them.
constexpr uint64_t kBusyAfter = 18;

}  // namespace

void PrivateHeap::note_busy(const HeapBin* bin) {
  if (LOAM_LIKELY(mode() != LOAM_MODE_STANDARD) || bin->taken < kBusyAfter) return;
  mode_.store(LOAM_MODE_LOW_FRAGMENTATION, std::memory_order_relaxed);
}

bool PrivateHeap::take_from_starter(Request* request) {
  const SizeClassInfo& info = kSizeClasses[request->size_class];
  if (info.bytes > kLargestStarterBlock) return false;
  HeapBin* bin = make_bin(request->size_class);
  if (bin == nullptr || bin->spans != 0) return false;
  if (mixed_.starter != nullptr && take_from_run(mixed_.starter, request)) return true;
  HeapRun* const run = mixed_.runs >= kMostStarters ? nullptr : add_mixed(Pages(1), LOAM_ALIGNMENT);
  if (run == nullptr) return false;
  mixed_.starter = run;
  return take_from_run(run, request);
}

}  // namespace loam
