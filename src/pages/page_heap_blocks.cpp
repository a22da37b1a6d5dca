// Runs of more than one block: whole blocks that follow each other, and the free beginning of the one behind them.
//
//   | used  . . | . . . . . | . . . . . | . . used |        .  free
//               ^------- a stretch ---------^
//
// They begin where a block does. So one that shrinks to a block's length or less lies in one block, as every run of that
// length must: it may be parked, or kept by its thread.
#include "pages/page_heap.h"

namespace loam {

namespace {

// Visits a region's stretches: visit(first page, pages).
template <class Visit>
void for_each_stretch(const Region* region, Visit visit) {
  region->whole.for_each_run([&](unsigned first, unsigned count) {
    const unsigned behind = first + count;
    // None free while it is not committed.
    const unsigned more = behind < kBlocksPerRegion ? region->blocks[behind].free.find_clear(0) : 0;
    visit(first * kPagesPerBlock, count * kPagesPerBlock + more);
  });
}

// How many of those pages hold memory. pre: all are free, and the first one is a block's
size_t backed_pages(const Region* region, uint32_t first, size_t pages) {
  size_t backed = 0;
  const Block* block = &region->blocks[first / kPagesPerBlock];
  for (; pages >= kPagesPerBlock; pages -= kPagesPerBlock) backed += (block++)->dirty_pages;
  if (pages != 0 && block->dirty_pages != 0) backed += block->backed.count_range(0, static_cast<unsigned>(pages));
  return backed;
}

}  // namespace

PageHeap::Place PageHeap::take_blocks(Pages pages, Pages alignment, Taker taker) {
  const auto blocks_of = [](Pages p) { return static_cast<unsigned>((p.count + kPagesPerBlock - 1) / kPagesPerBlock); };
  const uint32_t grain = alignment.count <= kPagesPerBlock ? kPagesPerBlock : static_cast<uint32_t>(alignment.count);
  release_parked();
  for (int attempt = 0; attempt < 2; ++attempt) {
    Place place;
    size_t least_fresh = ~size_t{0}, shortest = ~size_t{0};
    for (Region* region = regions_; region != nullptr; region = region->next) {
      for_each_stretch(region, [&](uint32_t first, size_t length) {
        for (uint32_t start = (first + grain - 1) & ~(grain - 1); start + pages.count <= first + length; start += grain) {
          // Where nothing is backed the first one is as good as any.
          if (least_fresh == pages.count && dirty_pages_ == Pages(0) && length >= shortest) break;
          const size_t fresh = pages.count - backed_pages(region, start, pages.count);
          if (fresh > least_fresh || (fresh == least_fresh && length >= shortest)) continue;
          least_fresh = fresh;
          shortest = length;
          place.region = region;
          place.page = PageId(start);
        }
      });
    }
    if (place.region == nullptr) {
      if (!grow(blocks_of(pages) + blocks_of(alignment) - 1)) return {};
      continue;
    }
    place.fresh = least_fresh == pages.count;
    Block* block = &place.region->blocks[place.page.index / kPagesPerBlock];
    for (size_t left = pages.count; left != 0; ++block) {
      const unsigned here = left < kPagesPerBlock ? static_cast<unsigned>(left) : kPagesPerBlock;
      activate(block, taker);
      mark_used(block, 0, here);
      left -= here;
    }
    return place;
  }
  return {};
}

}  // namespace loam
