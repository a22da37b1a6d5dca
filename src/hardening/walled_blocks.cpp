#include "hardening/walled_blocks.h"

#include "hardening/canary.h"
#include "map/own_table.h"
#include "os/os.h"

namespace loam {

constinit WalledBlocks walled_blocks;

bool WalledBlocks::start(size_t most_live) {
  start_canaries();
  most_live_ = most_live;
  if (!on()) ring_ = static_cast<Freed*>(map_own_table(kMostHeld * sizeof(Freed)));
  // Without memory for it, reports lack the callers.
  if (most_live == kMostSampled && sites_ == nullptr)
    sites_ = static_cast<Site*>(map_own_table(kSites * sizeof(Site)));
  return on();
}

// Where the block `holds` is among the places of a block; null if it is at none of them.
WalledBlocks::Site* WalledBlocks::place_of(uintptr_t block, uintptr_t holds) {
  if (sites_ == nullptr) return nullptr;
  for (size_t near = 0; near < kNear; ++near) {
    Site* const site = &sites_[(block / os::granularity() + near) % kSites];
    if (site->block == holds) return site;
  }
  return nullptr;
}

void WalledBlocks::note_callers(const void* block, os::Caller caller) {
  if (sites_ == nullptr) return;
  Site site{reinterpret_cast<uintptr_t>(block), {}, os::thread_number()};
  if (os::callers(caller, site.callers, kCallers) == 0) return;
  Lock lock(mutex_);
  if (Site* const free = place_of(site.block, 0); free != nullptr) *free = site;
}

WalledBlocks::Site WalledBlocks::site_of(uintptr_t block) {
  Site found{};
  if (sites_ == nullptr || !mutex_.try_lock()) return found;
  if (const Site* const site = place_of(block, block); site != nullptr) found = *site;
  mutex_.unlock();
  return found;
}

void* WalledBlocks::allocate(size_t bytes, size_t canary, size_t alignment, size_t wall,
                             bool right) {
  const size_t grain = os::granularity();
  if (alignment > PTRDIFF_MAX / 4 || bytes > PTRDIFF_MAX / 4) return nullptr;
  // relaxed: two threads that pass the limit at once exceed it by one
  if (live_.load(std::memory_order_relaxed) >= most_live_) return nullptr;
  const size_t mapped = round_up(bytes + canary, grain);
  const size_t before =
      round_up(wall < alignment ? alignment : wall, alignment < grain ? grain : alignment);
  const size_t whole = before + mapped + round_up(wall, grain);
  const size_t placed = alignment < grain ? grain : alignment;
  void* begin = os::reserve_held(whole, placed);
  while (begin == nullptr && release_oldest()) begin = os::reserve_held(whole, placed);
  if (begin == nullptr) return nullptr;
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) + before;
  const size_t slack = right ? (mapped - bytes - canary) / alignment * alignment : 0;
  HugeMap::Entry entry{first + slack,  mapped - slack,         bytes, 0,
                       before + slack, whole - before - mapped};
  void* const block = reinterpret_cast<void*>(entry.address);
  const bool committed = os::commit(reinterpret_cast<void*>(first), mapped);
  // The canary is written before the block enters the table: a thread that finds the block there
  // may check its canary, also in the child of a fork() meanwhile.
  if (committed) write_canary(block, bytes, entry.mapped);
  if (!committed || !huge_map.enter(entry)) {
    os::release(begin, whole);
    return nullptr;
  }
  live_.fetch_add(1, std::memory_order_relaxed);
  return block;
}

bool WalledBlocks::resize(const HugeMap::Entry& entry, size_t bytes, size_t canary) {
  const size_t grain = os::granularity();
  if (bytes > PTRDIFF_MAX / 4) return false;
  // The block's present end and its wanted end; its begin may lie inside a page (`right`).
  const uintptr_t end = entry.address + entry.mapped;
  const uintptr_t wanted = round_up(entry.address + bytes + canary, grain);
  if (wanted > end && wanted - end + grain > entry.behind) return false;
  if (wanted > end && !os::commit(reinterpret_cast<void*>(end), wanted - end)) return false;
  // In this order, since first_overrun() may read meanwhile: the bytes that the entry calls canary
  // always are canary.
  write_canary(reinterpret_cast<void*>(entry.address), bytes, wanted - entry.address);
  huge_map.change_walled(entry.address, wanted - entry.address, bytes);
  // A refusal does no harm: those pages no longer belong to the block.
  if (wanted < end) static_cast<void>(os::decommit(reinterpret_cast<void*>(wanted), end - wanted));
  return true;
}

bool WalledBlocks::free(const void* block, const void* caller, uint32_t thread) {
  HugeMap::Entry entry = huge_map.find(reinterpret_cast<uintptr_t>(block));
  if (!entry.has_walls()) return false;
  const size_t broken = first_overwritten(block, entry.requested, entry.mapped);
  // The report comes while the table still describes the block.
  if (LOAM_UNLIKELY(broken != entry.mapped)) report_overflow(block, broken, entry.requested);
  // Another thread may have been faster.
  if (!huge_map.take_walled(entry.address, &entry)) return false;
  live_.fetch_sub(1, std::memory_order_relaxed);
  Site allocated{};
  {
    Lock lock(mutex_);
    if (Site* const site = place_of(entry.address, entry.address); site != nullptr) {
      allocated = *site;
      site->block = 0;
    }
  }
  void* const begin = reinterpret_cast<void*>(entry.begin());
  if (os::decommit(begin, entry.whole())) {
    while (!hold({entry.begin(), entry.whole(), entry.address, entry.requested, caller, thread,
                  allocated})) {
      static_cast<void>(release_oldest());
    }
  } else {
    os::release(begin, entry.whole());
  }
  return true;
}

bool WalledBlocks::hold(const Freed& freed) {
  Lock lock(mutex_);
  if (count_ == kMostHeld || (count_ != 0 && held_bytes_ + freed.whole > kMostHeldBytes))
    return false;
  ring_[(first_ + count_++) % kMostHeld] = freed;
  held_bytes_ += freed.whole;
  return true;
}

bool WalledBlocks::release_oldest() {
  Freed oldest;
  {
    Lock lock(mutex_);
    if (count_ == 0) return false;
    oldest = ring_[first_];
    first_ = (first_ + 1) % kMostHeld;
    --count_;
    held_bytes_ -= oldest.whole;
  }
  os::release(reinterpret_cast<void*>(oldest.begin), oldest.whole);
  return true;
}

bool WalledBlocks::release_some() {
  if (!on()) return false;
  size_t left;
  {
    Lock lock(mutex_);
    left = count_ / 2;
  }
  bool released = false;
  for (;;) {
    if (!release_oldest()) return released;
    released = true;
    Lock lock(mutex_);
    if (count_ <= left) return true;
  }
}

WalledBlocks::Freed WalledBlocks::freed_at(uintptr_t address) {
  Freed found{};
  if (!on() || !mutex_.try_lock()) return found;
  for (size_t back = 1; back <= count_ && found.begin == 0; ++back) {
    const Freed& freed = ring_[(first_ + count_ - back) % kMostHeld];
    if (address - freed.begin < freed.whole) found = freed;
  }
  mutex_.unlock();
  return found;
}

}  // namespace loam
