#include "pages/huge_map.h"

#include "base/check.h"
#include "map/own_table.h"
#include "os/os.h"
#include "pages/page_heap.h"

namespace loam {

constinit HugeMap huge_map;

namespace {

// Tells the page heap about a change. If a block grew, the page heap's free memory goes back. pre:
// the table's lock is not held
void note_change(uintptr_t before, size_t bytes_before, uintptr_t after, size_t bytes) {
  page_heap.note_huge({before, Pages::covering(bytes_before)}, {after, Pages::covering(bytes)});
}

// Asks for huge pages of 2 MiB in a mapping, if the user asked for them (LOAM_HUGE_PAGES=on). A
// refusal needs no action.
void ask_for_huge_pages(void* block, size_t mapped) {
  if (LOAM_LIKELY(!page_heap.huge_pages().is_always()) || mapped < kSlabBytes) return;
  static_cast<void>(os::advise_huge(block, mapped, true));
}

// Makes a mapping for a block, or takes a kept one if the block need not be zero. *zero says
// whether it must be zero; on return, whether it is. pre: the table's lock is not held
void* map(size_t mapped, size_t alignment, bool grows, bool* zero) {
  const Pages pages = Pages::covering(mapped);
  const size_t wanted =
      alignment <= os::granularity() ? kPageBytes : alignment;  // all mappings have this alignment
  const IdleMappings::Mapping kept =
      *zero ? IdleMappings::Mapping{} : page_heap.take_mapping(pages, wanted, grows);
  void* block = reinterpret_cast<void*>(kept.address);
  if (kept.address != 0 && kept.pages != pages)
    block = os::remap_block(block, kept.pages.bytes(), mapped, false);
  if (block == nullptr && kept.address != 0) {  // the kept mapping could not grow
    note_change(kept.address, kept.pages.bytes(), 0, 0);
    os::release(reinterpret_cast<void*>(kept.address), kept.pages.bytes());
  }
  *zero = block == nullptr;
  if (*zero) {
    block = os::map_block(mapped, alignment);
    if (block != nullptr) ask_for_huge_pages(block, mapped);
  }
  if (block != nullptr)
    note_change(0, *zero ? 0 : kept.pages.bytes(), reinterpret_cast<uintptr_t>(block), mapped);
  return block;
}

}  // namespace

HugeMap::Entry* HugeMap::locate(uintptr_t address) {
  if (table_ == nullptr || address == 0) return nullptr;
  const size_t mask = (size_t{1} << bits_) - 1;
  for (size_t i = home(address);; i = (i + 1) & mask) {
    if (table_[i].address == address) return &table_[i];
    if (table_[i].address == 0) return nullptr;
  }
}

bool HugeMap::grow_table() {
  const unsigned bits = table_ == nullptr ? 9 : bits_ + 1;
  Entry* const fresh = static_cast<Entry*>(map_own_table(sizeof(Entry) << bits));
  if (fresh == nullptr) return false;
  Entry* old = table_;
  const size_t old_size = old == nullptr ? 0 : size_t{1} << bits_;
  table_ = fresh;
  bits_ = bits;
  const size_t mask = (size_t{1} << bits) - 1;
  for (size_t i = 0; i < old_size; ++i) {
    if (old[i].address == 0) continue;
    size_t to = home(old[i].address);
    while (table_[to].address != 0) to = (to + 1) & mask;
    table_[to] = old[i];
  }
  if (old != nullptr) unmap_own_table(old, old_size * sizeof(Entry));
  return true;
}

bool HugeMap::insert(const Entry& entry) {
  if (!make_room()) return false;
  const size_t mask = (size_t{1} << bits_) - 1;
  size_t i = home(entry.address);
  while (table_[i].address != 0) i = (i + 1) & mask;
  table_[i] = entry;
  ++count_;
  mapped_bytes_ += entry.mapped;
  if (mapped_bytes_ > peak_mapped_bytes_) peak_mapped_bytes_ = mapped_bytes_;
  requested_bytes_ += entry.requested;
  return true;
}

void HugeMap::erase(Entry* entry) {
  mapped_bytes_ -= entry->mapped;
  requested_bytes_ -= entry->requested;
  --count_;
  // Backward-shift deletion: no tombstones, so probes never grow with age.
  const size_t mask = (size_t{1} << bits_) - 1;
  size_t hole = static_cast<size_t>(entry - table_);
  for (size_t i = (hole + 1) & mask; table_[i].address != 0; i = (i + 1) & mask) {
    const size_t distance_home = (i - home(table_[i].address)) & mask;
    if (distance_home >= ((i - hole) & mask)) {
      table_[hole] = table_[i];
      hole = i;
    }
  }
  table_[hole] = Entry{};
}

void* HugeMap::allocate(size_t bytes, size_t alignment, uint64_t heap, bool* zero, size_t extra,
                        bool grows) {
  const size_t grain = os::granularity();
  if (alignment < grain) alignment = grain;
  if (bytes > PTRDIFF_MAX - alignment || extra > PTRDIFF_MAX - alignment - bytes) return nullptr;
  const size_t mapped = round_up(bytes + extra, grain);
  void* block = map(mapped, alignment, grows, zero);
  if (block == nullptr) return nullptr;
  bool inserted;
  {
    Lock lock(mutex_);
    inserted = insert({reinterpret_cast<uintptr_t>(block), mapped, bytes, heap});
    if (LOAM_LIKELY(inserted)) ++allocations_;
  }
  if (LOAM_UNLIKELY(!inserted)) {
    note_change(reinterpret_cast<uintptr_t>(block), mapped, 0, 0);
    os::release(block, mapped);
    return nullptr;
  }
  return block;
}

void* HugeMap::take_over(Span* run, size_t bytes, uint64_t heap, size_t extra) {
  const size_t grain = os::granularity();
  const Pages held(run->large.pages);
  void* const from = reinterpret_cast<void*>(span_base(run));
  if (held < kLeastMoved || (span_base(run) | held.bytes()) % grain != 0) return nullptr;
  if (bytes > PTRDIFF_MAX - grain || extra > PTRDIFF_MAX - grain - bytes) return nullptr;
  const size_t mapped = round_up(bytes + extra, grain);
  if (os::is_watched() || page_heap.keeps_mappings(Pages::covering(mapped))) return nullptr;
  uintptr_t block;
  os::Moved moved;
  {
    Lock lock(mutex_);  // held across the move, so that the place in the table stays free
    if (!make_room()) return nullptr;
    moved = os::move_to_block(from, held.bytes(), mapped);
    if (moved.block == nullptr) return nullptr;
    block = reinterpret_cast<uintptr_t>(moved.block);
    const bool inserted = insert({block, mapped, bytes, heap});
    LOAM_CHECK(inserted, "huge map: no place where there was room");
    ++allocations_;
  }
  page_heap.hand_over(run, moved.has_place);
  ask_for_huge_pages(reinterpret_cast<void*>(block), mapped);
  note_change(block, held.bytes(), block, mapped);
  return reinterpret_cast<void*>(block);
}

bool HugeMap::free(uintptr_t address, bool may_wait) {
  Entry removed;
  {
    Lock lock(mutex_);
    Entry* entry = locate(address);
    if (entry == nullptr) return false;
    removed = *entry;
    erase(entry);
  }
  const Pages pages = Pages::covering(removed.mapped);
  if (removed.has_walls() || os::is_watched()) may_wait = false;
  if (may_wait && page_heap.keep_mapping(address, pages)) return true;
  if (!may_wait) note_change(address, removed.mapped, 0, 0);
  os::unmap_block(reinterpret_cast<void*>(removed.begin()), removed.whole());
  return true;
}

void* HugeMap::resize(uintptr_t address, size_t bytes, bool in_place, size_t extra, bool zero) {
  if (bytes > PTRDIFF_MAX - os::granularity() || extra > PTRDIFF_MAX - os::granularity() - bytes)
    return nullptr;
  const size_t mapped = round_up(bytes + extra, os::granularity());
  const Entry old = find(address);
  const size_t old_mapped = old.mapped;
  if (old_mapped == 0 || old.has_walls()) return nullptr;
  if (mapped != old_mapped && os::is_watched()) return nullptr;
  // A kept mapping that begins where the block ends becomes part of the block, with its old
  // content.
  const uintptr_t end = address + old_mapped;
  const bool takes_kept = mapped > old_mapped && !zero;
  const Pages more =
      takes_kept ? page_heap.take_mapping_at(end, Pages::covering(mapped - old_mapped)) : Pages(0);
  const size_t mapped_before = old_mapped + more.bytes();
  Entry changed{};
  if (Lock lock(mutex_); Entry* const entry = locate(address)) {
    const bool stays = mapped == mapped_before;
    void* const moved =
        stays ? reinterpret_cast<void*>(address)
              : os::remap_block(reinterpret_cast<void*>(address), mapped_before, mapped, in_place);
    if (moved != nullptr) {
      changed = {reinterpret_cast<uintptr_t>(moved), mapped, bytes, entry->heap};
      // The lock is held across the move: another thread may be given the old address at once, and
      // must not find a stale entry under it.
      erase(entry);
      const bool inserted = insert(changed);
      LOAM_CHECK(inserted, "huge map: no place for a block that was just removed");
    }
  }
  if (changed.address != 0) {
    if (mapped > mapped_before)
      ask_for_huge_pages(reinterpret_cast<void*>(changed.address), mapped);
    if (mapped != mapped_before) note_change(address, mapped_before, changed.address, mapped);
  } else if (more != Pages(0)) {
    note_change(end, more.bytes(), 0, 0);
    os::release(reinterpret_cast<void*>(end), more.bytes());
  }
  return reinterpret_cast<void*>(changed.address);
}

bool HugeMap::enter(const Entry& entry) {
  {
    Lock lock(mutex_);
    if (!insert(entry)) return false;
    ++allocations_;
  }
  note_change(0, 0, entry.address, entry.mapped);
  return true;
}

bool HugeMap::take_walled(uintptr_t address, Entry* removed) {
  {
    Lock lock(mutex_);
    Entry* const entry = locate(address);
    if (entry == nullptr || !entry->has_walls()) return false;
    *removed = *entry;
    erase(entry);
  }
  note_change(address, removed->mapped, 0, 0);
  return true;
}

void HugeMap::change_walled(uintptr_t address, size_t mapped, size_t requested) {
  size_t before;
  {
    Lock lock(mutex_);
    Entry* const entry = locate(address);
    LOAM_CHECK(entry != nullptr && entry->has_walls(), "huge map: no block with walls");
    before = entry->mapped;
    entry->behind = entry->behind + before - mapped;
    entry->mapped = mapped;
    mapped_bytes_ = mapped_bytes_ - before + mapped;
    if (mapped_bytes_ > peak_mapped_bytes_) peak_mapped_bytes_ = mapped_bytes_;
    requested_bytes_ = requested_bytes_ - entry->requested + requested;
    entry->requested = requested;
  }
  if (mapped != before) note_change(address, before, address, mapped);
}

HugeMap::Entry HugeMap::covering(uintptr_t address) {
  if (!mutex_.try_lock()) return Entry{};
  Entry found{};
  const size_t size = table_ == nullptr ? 0 : size_t{1} << bits_;
  for (size_t i = 0; i < size && found.address == 0; ++i) {
    const Entry& entry = table_[i];
    if (entry.address != 0 && address - entry.begin() < entry.whole()) found = entry;
  }
  mutex_.unlock();
  return found;
}

HugeMap::Entry HugeMap::find(uintptr_t address) {
  Lock lock(mutex_);
  const Entry* entry = locate(address);
  return entry == nullptr ? Entry{} : *entry;
}

HugeMap::Entry HugeMap::after(uintptr_t address) {
  Lock lock(mutex_);
  const size_t size = table_ == nullptr ? 0 : size_t{1} << bits_;
  const Entry* next = nullptr;
  for (size_t i = 0; i < size; ++i) {
    const Entry& entry = table_[i];
    if (entry.address > address && (next == nullptr || entry.address < next->address))
      next = &entry;
  }
  return next == nullptr ? Entry{} : *next;
}

HugeMap::Totals HugeMap::totals() {
  Lock lock(mutex_);
  return {count_, mapped_bytes_, requested_bytes_, peak_mapped_bytes_, allocations_};
}

bool HugeMap::is_valid() {
  Lock lock(mutex_);
  size_t count = 0, mapped = 0, requested = 0;
  const size_t size = table_ == nullptr ? 0 : size_t{1} << bits_;
  for (size_t i = 0; i < size; ++i) {
    if (table_[i].address == 0) continue;
    if (locate(table_[i].address) != &table_[i]) return false;
    ++count;
    mapped += table_[i].mapped;
    requested += table_[i].requested;
  }
  return count == count_ && mapped == mapped_bytes_ && requested == requested_bytes_;
}

}  // namespace loam
