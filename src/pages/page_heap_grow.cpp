// The page heap's address space: extents, commits, and releases when space is scarce.
#include "base/check.h"
#include "map/metadata.h"
#include "os/charge.h"
#include "pages/page_heap.h"

namespace loam {

namespace {

// The most blocks that one call makes accessible: 64 MiB. Fewer means more calls while growing.
// More means commit charge that overcommit_memory=2 refuses.
constexpr size_t kMaxCommitBlocks = 32;

// If memory is locked, free blocks at an extent's end stay mapped up to this part of the heap.
// Chosen: a smaller part would map and fill them again for each long block; with a larger part more
// memory is locked without use.
constexpr size_t kIdleEndShare = 8;

// The most extents that are made for one request. Another mapping may take the place of an extent
// before the request is served. Chosen.
constexpr unsigned kGrowthAttempts = 4;

}  // namespace

void PageHeap::stop_reserving_locked() {
  if (!os::is_reserving()) return;
  for (Region* region = regions_; region != nullptr; region = region->next) {
    for (uint32_t i = 0; i < region->extent_count; ++i) {
      const Extent& extent = region->extents[i];
      const uint32_t left = extent.block_count - extent.committed_blocks;
      if (left == 0) continue;
      const size_t first = extent.first_block + extent.committed_blocks;
      os::release(reinterpret_cast<char*>(region->base) + (first << kBlockShift),
                  size_t{left} << kBlockShift);
    }
    return_reserved_records(region);
  }
  metadata.stop_reserving();
  for_each_idle_part(&os::unlock_zeros);
}

void PageHeap::for_each_idle_part(VisitPart visit) {
  for (Region* region = regions_; region != nullptr; region = region->next)
    for_each_idle_map(region, visit);
  for_each_idle_directory(regions_, visit);
}

void PageHeap::unmap_ends(size_t more_than) {
  for (Region* region = regions_; region != nullptr; region = region->next) {
    for (uint32_t i = 0; i < region->extent_count; ++i) {
      Extent& extent = region->extents[i];
      uint32_t tail = 0;
      while (tail < extent.committed_blocks &&
             region->whole.test(extent.first_block + extent.committed_blocks - 1 - tail))
        ++tail;
      if (tail <= more_than) continue;
      release_blocks(region, extent.first_block + extent.committed_blocks - tail, tail, 0);
      extent.committed_blocks -= tail;
      reserved_blocks_ += tail;  // the extent still has the place
    }
  }
}

// The kernel counts all mapped memory as locked, so a purge does not reduce the count.
void PageHeap::unmap_ends_if_locked() {
  if (LOAM_UNLIKELY(!os::is_reserving())) unmap_ends(committed_blocks_ / kIdleEndShare);
}

int PageHeap::lock_all_memory(int flags) {
  Lock lock(mutex_);
  stop_reserving_locked();
  bool done = os::lock_all_memory(flags, os::Locked::kAll);
  if (!done && os::is_single_threaded()) {
    // All mapped memory may exceed the limit. So idle parts are unmapped during the call; there is
    // no other thread that could read them.
    for_each_idle_part(&os::release);
    done = os::lock_all_memory(flags, os::Locked::kPresent);
    os::ErrnoGuard guard;
    for_each_idle_part([](void* begin, size_t bytes) {
      LOAM_CHECK(os::commit(begin, bytes),
                 "page map: the system took memory and does not give it back");
    });
    if (done) done = os::lock_all_memory(flags, os::Locked::kFuture);
  }
  os::ErrnoGuard guard;
  if (done) for_each_idle_part(&os::unlock_zeros);
  return done ? 0 : -1;
}

bool PageHeap::add_extent(unsigned blocks) {
  unsigned want = kBlocksPerRegion >> extent_halvings_;
  while (want < blocks) want *= 2;
  for (; want >= blocks && want >= 1; want /= 2) {
    const size_t bytes = size_t{want} << kBlockShift;
    void* memory = os::reserve(bytes, bytes);
    if (memory == nullptr && os::is_reserving() && os::locks_new_memory()) {
      stop_reserving_locked();  // the limit does not allow to lock this much
      memory = os::reserve(bytes, bytes);
    }
    if (memory == nullptr) continue;
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
    // The first region is not looked up, because a read of the directory before its first write
    // would cost a second fault.
    const bool looked_for = regions_ != nullptr && address >> kAddressBits == 0;
    Region* region = looked_for ? region_at(address) : nullptr;
    if (region == nullptr && address >> kAddressBits == 0) {
      region = add_region(address & ~(kRegionBytes - 1));
      if (region != nullptr) append_region(region);
    }
    if (region == nullptr || region->extent_count == kMaxExtents) {
      os::give_up(memory, bytes);
      continue;  // a region's header may fit after a smaller request
    }
    if (LOAM_UNLIKELY(!os::is_reserving())) for_each_idle_map(region, &os::unlock_zeros);
    const uint32_t first_block = static_cast<uint32_t>((address - region->base) >> kBlockShift);
    region->extents[region->extent_count++] = Extent{first_block, want, 0};
    reserved_blocks_ += want;
    while (want < kBlocksPerRegion >> extent_halvings_) ++extent_halvings_;
    return true;
  }
  return false;
}

void PageHeap::release_blocks(Region* region, uint32_t first, uint32_t committed,
                              uint32_t reserved) {
  for (uint32_t b = first; b < first + committed; ++b) forget_block(&region->blocks[b]);
  const uint32_t mapped = os::is_reserving() ? committed + reserved : committed;
  if (mapped != 0) {
    os::release(reinterpret_cast<char*>(region->base) + (size_t{first} << kBlockShift),
                size_t{mapped} << kBlockShift);
  }
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
      // The extent has used blocks: only its ends go.
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
  if (block->dirty_pages != 0) age_.remove(block);
  if (LOAM_UNLIKELY(block->huge)) end_huge(block);
  dirty_pages_ -= Pages(block->dirty_pages);
  forget_whole(block);
  *block = Block{};
}

void PageHeap::append_region(Region* region) {
  Region** tail = &regions_;
  while (*tail != nullptr) tail = &(*tail)->next;
  *tail = region;
}

// pre: `blocks` blocks of the extent are reserved and not committed
bool PageHeap::commit(Region* region, Extent& extent, unsigned blocks) {
  const uint32_t left = extent.block_count - extent.committed_blocks;
  size_t step = committed_blocks_ / 8;
  if (step > kMaxCommitBlocks) step = kMaxCommitBlocks;
  if (step < blocks) step = blocks;
  if (step > left) step = left;
  if (os::kChargesCommit) step = blocks;
  const uint32_t first = extent.first_block + extent.committed_blocks;
  char* address = reinterpret_cast<char*>(region->base) + (size_t{first} << kBlockShift);
  // The program may have locked all memory without a call of Loam. The last committed block shows
  // it, unless the program locked that block alone. The test is left out for the first blocks,
  // because it would cost a system call at the start of every program.
  if (os::is_reserving() && extent.committed_blocks != 0 && os::is_locked(address - 1) &&
      (os::is_locked(address) || os::locks_new_memory())) {
    stop_reserving_locked();
  }
  if (!os::is_reserving()) {
    step = blocks;  // locked memory is backed at once
    if (!lock_maps(region, first, blocks)) return false;
  }
  os::Committed got = os::commit_more(address, step << kBlockShift);
  if (got != os::Committed::kYes) {
    ++refused_calls_;
    if (got == os::Committed::kRefused && step != blocks) {
      step = blocks;
      got = os::commit_more(address, step << kBlockShift);
    }
    if (got == os::Committed::kTaken) {  // the place has another mapping, so the extent ends here
      reserved_blocks_ -= left;
      extent.block_count = extent.committed_blocks;
    }
    if (got != os::Committed::kYes) return false;
  }
  // If the system backed any 2 MiB by a huge page, one byte written in each of many blocks would
  // cost 2 MiB a block. A refusal needs no action, because that system has no such pages.
  static_cast<void>(os::advise_huge(address, step << kBlockShift, false));
  for (uint32_t b = first; b < first + step; ++b) {
    Block& block = region->blocks[b];
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
    if (extent.block_count - extent.committed_blocks >= blocks)
      return commit(region, extent, blocks);
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
  for (unsigned attempt = 0; attempt < kGrowthAttempts; ++attempt) {
    for (Region* region = regions_; region != nullptr; region = region->next) {
      for (uint32_t i = 0; i < region->extent_count; ++i) {
        Extent& extent = region->extents[i];
        if (extent.block_count - extent.committed_blocks < blocks) continue;
        if (commit(region, extent, blocks)) return true;
        if (extent.block_count != extent.committed_blocks) return false;
      }
    }
    if (!add_extent(blocks)) return false;
  }
  return false;
}

}  // namespace loam
