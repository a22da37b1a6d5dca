// The page heap's address space: extents, commits, and what goes back when space is scarce.
#include "os/os.h"
#include "pages/page_heap.h"

namespace loam {

namespace {

// Blocks made accessible in one call, at most: 64 MiB. Fewer means more calls while growing, more means
// commit charge that overcommit_memory=2 refuses.
constexpr size_t kMaxCommitBlocks = 32;

// Blocks that keep small pages where huge ones are asked for. Chosen: 16 MiB; a program that needs no more would pay for pages that it
// does not touch, and has few of which the processor's cache of addresses does not know.
constexpr size_t kSmallPageBlocks = 8;

}  // namespace

bool PageHeap::add_extent(unsigned blocks) {
  unsigned want = kBlocksPerRegion >> extent_halvings_;
  while (want < blocks) want *= 2;
  for (; want >= blocks && want >= 1; want /= 2) {
    const size_t bytes = size_t{want} << kBlockShift;
    void* memory = os::reserve(bytes, bytes);
    if (memory == nullptr) continue;
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
    // The first region is not looked up: reading the directory before it is written would fault twice.
    const bool looked_for = regions_ != nullptr && address >> kAddressBits == 0;
    Region* region = looked_for ? region_at(address) : nullptr;
    if (region == nullptr && address >> kAddressBits == 0) {
      region = add_region(address & ~(kRegionBytes - 1));
      if (region != nullptr) append_region(region);
    }
    if (region == nullptr || region->extent_count == kMaxExtents) {
      os::release(memory, bytes);
      continue;  // a header may fit once less is asked for
    }
    // Where the system would back any 2 MiB by a huge page, one byte written in each of many blocks would
    // cost 2 MiB a block. A refusal (no such pages on this system) is as good.
    static_cast<void>(os::advise_huge(memory, bytes, false));
    const uint32_t first_block = static_cast<uint32_t>((address - region->base) >> kBlockShift);
    region->extents[region->extent_count++] = Extent{first_block, want, 0};
    reserved_blocks_ += want;
    while (want < kBlocksPerRegion >> extent_halvings_) ++extent_halvings_;
    return true;
  }
  return false;
}

void PageHeap::release_blocks(Region* region, uint32_t first, uint32_t committed, uint32_t reserved) {
  for (uint32_t b = first; b < first + committed; ++b) forget_block(&region->blocks[b]);
  os::release(reinterpret_cast<char*>(region->base) + (size_t{first} << kBlockShift),
              size_t{committed + reserved} << kBlockShift);
  committed_blocks_ -= committed;
  reserved_blocks_ -= committed + reserved;
}

bool PageHeap::release_idle_extents() {
  Lock lock(mutex_);
  release_parked();
  bool released = shed_all_mappings();
  for (Region* region = regions_; region != nullptr; region = region->next) {
    for (uint32_t i = 0; i < region->extent_count;) {
      Extent& extent = region->extents[i];
      const uint32_t first = extent.first_block, committed = extent.committed_blocks;
      const uint32_t untouched = extent.block_count - committed;
      uint32_t head = 0, tail = 0;
      while (head < committed && region->whole.test(first + head)) ++head;
      if (head == committed) {
        release_blocks(region, first, committed, untouched);
        extent = region->extents[--region->extent_count];
        released = true;
        continue;
      }
      // Something lives in it: the ends go.
      while (region->whole.test(first + committed - 1 - tail)) ++tail;
      if (tail + untouched != 0) release_blocks(region, first + committed - tail, tail, untouched);
      if (head != 0) release_blocks(region, first, head, 0);
      released |= head + tail + untouched != 0;
      extent = Extent{first + head, committed - head - tail, committed - head - tail};
      ++i;
    }
  }
  return released;
}

void PageHeap::forget_block(Block* block) {
  dirty_index(block).place(block, 0);
  if (block->aged) age_.remove(block);
  dirty_pages_ -= Pages(block->dirty_pages);
  forget_whole(block);
  *block = Block{};
}

void PageHeap::append_region(Region* region) {
  Region** tail = &regions_;
  while (*tail != nullptr) tail = &(*tail)->next;
  *tail = region;
}

// pre: so many blocks of the extent are reserved and not committed
bool PageHeap::commit(Region* region, Extent& extent, unsigned blocks) {
  const uint32_t left = extent.block_count - extent.committed_blocks;
  size_t step = committed_blocks_ / 8;
  if (step > kMaxCommitBlocks) step = kMaxCommitBlocks;
  if (step < blocks) step = blocks;
  if (step > left) step = left;
  const uint32_t first = extent.first_block + extent.committed_blocks;
  char* address = reinterpret_cast<char*>(region->base) + (size_t{first} << kBlockShift);
  if (!os::commit(address, step << kBlockShift)) {
    ++refused_calls_;
    step = blocks;
    if (!os::commit(address, step << kBlockShift)) return false;
  }
  const bool may_be_huge = wants_huge_pages() && committed_blocks_ >= kSmallPageBlocks;
  for (uint32_t b = first; b < first + step; ++b) {
    Block& block = region->blocks[b];
    if (LOAM_UNLIKELY(may_be_huge)) block.may_be_huge = true;  // a bit is read before it is written: that would be another fault
    block.free.set_range(0, kPagesPerBlock);
    block.free_pages = kPagesPerBlock;
    block.state = BlockState::kWhole;
    region->whole.set(b);
  }
  extent.committed_blocks += static_cast<uint32_t>(step);
  committed_blocks_ += step;
  whole_blocks_ += static_cast<unsigned>(step);
  return true;
}

bool PageHeap::commit_at(Region* region, uint32_t block, unsigned blocks) {
  for (uint32_t i = 0; i < region->extent_count; ++i) {
    Extent& extent = region->extents[i];
    if (extent.first_block + extent.committed_blocks != block) continue;
    if (extent.block_count - extent.committed_blocks >= blocks) return commit(region, extent, blocks);
  }
  return false;
}

bool PageHeap::reserves(uintptr_t address) {
  Lock lock(mutex_);
  const Region* region = region_at(address);
  if (region == nullptr) return false;
  const uint32_t block = static_cast<uint32_t>((address - region->base) / kBlockBytes);
  for (uint32_t i = 0; i < region->extent_count; ++i) {
    const Extent& extent = region->extents[i];
    if (block - extent.first_block < extent.block_count) return true;
  }
  return false;
}

bool PageHeap::grow(unsigned blocks) {
  if (blocks > kBlocksPerRegion) return false;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (Region* region = regions_; region != nullptr; region = region->next) {
      for (uint32_t i = 0; i < region->extent_count; ++i) {
        Extent& extent = region->extents[i];
        if (extent.block_count - extent.committed_blocks < blocks) continue;
        return commit(region, extent, blocks);
      }
    }
    if (!add_extent(blocks)) return false;
  }
  return false;
}

}  // namespace loam
