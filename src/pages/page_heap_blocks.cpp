// Runs of more than one block. They take consecutive whole blocks, and the free beginning of the
// block behind them.
//
//   | used  . . | . . . . . | . . . . . | . . used |        .  free
//               ^------- a stretch ---------^
//
// They begin where a block begins. So a run that shrinks to a block's length or less lies in one
// block. Every run of that length must, because it may be parked, or kept by its thread.
#include "pages/page_heap.h"

namespace loam {

namespace {

// The length of the stretch that begins with these `count` whole blocks.
size_t stretch_pages(const Region* region, unsigned first, unsigned count) {
  const unsigned behind = first + count;
  // A block that is not committed has no free pages.
  const unsigned more = behind < kBlocksPerRegion ? region->blocks[behind].free.find_clear(0) : 0;
  return size_t{count} * kPagesPerBlock + more;
}

// How many of these pages are backed. pre: all are free, and the first one begins a block
size_t backed_pages(const Region* region, uint32_t first, size_t pages) {
  size_t backed = 0;
  const Block* block = &region->blocks[first / kPagesPerBlock];
  for (; pages >= kPagesPerBlock; pages -= kPagesPerBlock) backed += (block++)->dirty_pages;
  if (pages != 0 && block->dirty_pages != 0)
    backed += block->backed.count_range(0, static_cast<unsigned>(pages));
  return backed;
}

// The first place for `pages` pages, at `start` or behind it, that reaches into memory that may be
// backed: a backed block, or the free pages at the stretch's tail. pre: start is a multiple of
// grain
uint32_t next_backed_place(const Region* region, uint32_t start, uint32_t tail, Pages pages,
                           uint32_t grain) {
  const uint32_t backed = region->whole_backed.find_set(start / kPagesPerBlock) * kPagesPerBlock;
  const uint32_t next = backed < tail ? backed : tail;
  if (next < start + pages.count) return start;
  return static_cast<uint32_t>(round_up(next - pages.count + 1, grain));
}

}  // namespace

// Most free blocks are either backed completely or not at all, so the search looks at few places.
// In a stretch it stops at a place that needs no fresh page. Once it knows a place where all pages
// are fresh, it looks only at places that hold a backed block. A region with a place that needs no
// fresh page is the last one, because later regions could offer only a shorter stretch.
PageHeap::Place PageHeap::take_blocks(Pages pages, Pages alignment, Taker taker) {
  const auto blocks_of = [](Pages p) {
    return static_cast<unsigned>((p.count + kPagesPerBlock - 1) / kPagesPerBlock);
  };
  const uint32_t grain =
      alignment.count <= kPagesPerBlock ? kPagesPerBlock : static_cast<uint32_t>(alignment.count);
  release_parked();
  places_looked_at_ = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    Place place;
    size_t least_fresh = pages.count + 1, shortest = ~size_t{0};
    for (Region* region = regions_; region != nullptr && least_fresh != 0; region = region->next) {
      region->whole.for_each_run([&](unsigned first_block, unsigned count) {
        // These tests do not need a look at the block behind the whole blocks.
        if ((size_t{count} + 1) * kPagesPerBlock <= pages.count) return;
        if (least_fresh == 0 && size_t{count} * kPagesPerBlock >= shortest) return;
        const uint32_t first = first_block * kPagesPerBlock;
        const uint32_t tail =
            first + count * kPagesPerBlock;  // here the pages of a used block begin
        const size_t length = stretch_pages(region, first_block, count);
        for (uint32_t start = (first + grain - 1) & ~(grain - 1);
             start + pages.count <= first + length; start += grain) {
          if (least_fresh == 0 && length >= shortest) break;
          // A place without backed pages is no better.
          if (least_fresh < pages.count || (least_fresh == pages.count && length >= shortest)) {
            const uint32_t next = next_backed_place(region, start, tail, pages, grain);
            if (next != start) {
              start = next - grain;
              continue;
            }
          }
          ++places_looked_at_;
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
    place.zero = least_fresh == pages.count;
    use_blocks(&place.region->blocks[place.page.index / kPagesPerBlock], pages.count, taker);
    return place;
  }
  return {};
}

// Marks `pages` pages used, from the block's first page on. pre: they are free
void PageHeap::use_blocks(Block* block, size_t pages, Taker taker) {
  for (; pages != 0; ++block) {
    const unsigned here = pages < kPagesPerBlock ? static_cast<unsigned>(pages) : kPagesPerBlock;
    activate(block, taker);
    mark_used(block, 0, here);
    pages -= here;
  }
}

}  // namespace loam
