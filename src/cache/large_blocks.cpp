#include "cache/large_blocks.h"

#include "cache/thread_cache.h"
#include "pages/huge_map.h"

namespace loam {

void* allocate_large_block(size_t bytes, size_t alignment, uint64_t owner, bool* zero,
                           size_t extra) {
  const uint8_t heap = owner == 0 ? kDefaultHeap : kPrivateHeap;
  if (bytes > kLargestRequest) return nullptr;
  if (bytes == 0) bytes = 1;
  const Pages pages = Pages::covering(bytes + extra);
  const Pages aligned(alignment <= kPageBytes ? 1 : alignment >> kPageShift);
  if (pages <= kMaxRun && alignment <= kRegionBytes / 2) {
    const PageHeap::Run run =
        page_heap.allocate_large(pages, aligned, bytes, heap, current_cache->page_shard());
    if (run.span != nullptr) {
      *zero = run.zero;
      if (LOAM_UNLIKELY(run.fresh != 0)) {
        // The heap has grown: unused pages that bins and the thread keep may serve the next
        // request.
        default_small_heap.make_room_for_runs(pages);
        current_cache->note_growth(Pages(run.fresh));
      }
      return reinterpret_cast<void*>(span_base(run.span));
    }
  }
  // The block is too large or too aligned, or there is no region for it (a tight RLIMIT_AS): it
  // gets a mapping of its own.
  void* block = huge_map.allocate(bytes, alignment, owner, zero, extra);
  if (LOAM_LIKELY(block != nullptr)) return block;
  // Address space is scarce: regions release what they do not use, and the mapping is tried again.
  // A block for which there is no mapping may still fit a region that stays.
  if (page_heap.release_idle_extents())
    block = huge_map.allocate(bytes, alignment, owner, zero, extra);
  if (block != nullptr || pages <= kMaxRun || bytes > kRegionBytes || alignment > kRegionBytes / 2)
    return block;
  const PageHeap::Run run = page_heap.allocate_large(pages, aligned, bytes, heap);
  *zero = run.zero;
  return run.span == nullptr ? nullptr : reinterpret_cast<void*>(span_base(run.span));
}

}  // namespace loam
