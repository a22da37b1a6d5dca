// The guards of a private heap's blocks, where the heap asked for them: canaries behind live blocks
// (LOAM_HEAP_CANARY), and freed blocks that are held back full of poison (LOAM_HEAP_POISON). As in
// the hardened default heap (hardening.h), for each heap.
//
//   a held back slot is in the state kSlotCached;   bytes <= kMostBytes;   the newest `count`
//
// Under the heap's lock, but for canaries: the thread that has a block guards it.
#include <cstring>

#include "base/check.h"
#include "hardening/canary.h"
#include "hardening/quarantine.h"
#include "private/heap_registry.h"
#include "private/private_heap.h"

namespace loam {

struct HeldBack {
  static constexpr unsigned kPlaces = 510;
  /// As <loam/loam.h> promises.
  static constexpr size_t kMostBytes = size_t{64} << 10;
  CacheSlot ring[kPlaces];
  unsigned first;
  unsigned count;
  size_t bytes;
};
static_assert(sizeof(HeldBack) <= 8192, "two pages");

namespace {

size_t slot_bytes_of(const CacheSlot& slot) { return private_run_at(slot.block)->slot_bytes; }

}  // namespace

// ---- canaries -----------------------------------------------------------------------------------

size_t PrivateHeap::canary_bytes() const { return canary() ? kCanaryBytes : 0; }

void PrivateHeap::report_overflow(const void* block, Mutex* held) {
  const Found found = locate(block);
  if (found.status != LOAM_OK)
    return report_misuse("overflow: a block's end was overwritten", block, held);
  loam::report_overflow(block, first_overwritten(block, found.bytes, found.usable), found.bytes,
                        held);
}

bool PrivateHeap::blocks_are_intact(bool report) {
  if (!canary()) return true;
  bool intact = true;
  for (HeapRun* run : runs_) {
    // A large run has no slots; its one block is found at its base.
    const unsigned slots = run->slots != 0 ? run->slots : run->use == RunUse::kSetAside ? 0 : 1;
    for (unsigned slot = 0; slot < slots; ++slot) {
      const void* block =
          run->slots != 0 ? run->slot_address(slot) : reinterpret_cast<void*>(run->base);
      const Found found = locate(block);
      if (found.status != LOAM_OK ||
          first_overwritten(block, found.bytes, found.usable) == found.usable)
        continue;
      if (report) report_overflow(block, held_lock());
      intact = false;
    }
  }
  return intact;
}

Mutex* PrivateHeap::held_lock() {
  return heap_registry.is_inside() ? &heap_registry.mutex() : &mutex_;
}

// ---- poison -------------------------------------------------------------------------------------

size_t PrivateHeap::held_back() const { return held_back_ == nullptr ? 0 : held_back_->count; }

// The bins count them as taken, and the program has freed them, so readers see them as cached.
void PrivateHeap::count_held_back(uint32_t cached[kSizeClassCount]) const {
  for (unsigned i = 0; i < held_back(); ++i) {
    const CacheSlot& slot = held_back_->ring[(held_back_->first + i) % HeldBack::kPlaces];
    ++cached[private_run_at(slot.block)->size_class];
  }
}

void PrivateHeap::hold_back(const CacheSlot& slot, size_t bytes) {
  if (held_back_ == nullptr) held_back_ = static_cast<HeldBack*>(allocate_record(sizeof(HeldBack)));
  // No memory for the list, or a block that would push out too many others: it returns at once.
  if (held_back_ == nullptr || bytes > HeldBack::kMostBytes / 4) {
    if (zero_on_free()) memset(slot.block, 0, bytes);
    return give(&slot, 1);
  }
  HeldBack& held = *held_back_;
  while (held.count == HeldBack::kPlaces || held.bytes + bytes > HeldBack::kMostBytes)
    release_oldest();
  poison(slot.block, bytes);
  held.ring[(held.first + held.count++) % HeldBack::kPlaces] = slot;
  held.bytes += bytes;
}

void PrivateHeap::release_oldest() {
  HeldBack& held = *held_back_;
  const CacheSlot slot = held.ring[held.first];
  const size_t bytes = slot_bytes_of(slot);
  held.first = (held.first + 1) % HeldBack::kPlaces;
  --held.count;
  held.bytes -= bytes;
  const size_t broken = first_unpoisoned(slot.block, bytes);
  if (LOAM_UNLIKELY(broken != bytes)) report_poison(slot.block, broken, held_lock());
  if (zero_on_free()) memset(slot.block, 0, bytes);
  give(&slot, 1);
}

void PrivateHeap::release_all_held_back() {
  if (held_back_ == nullptr) return;
  while (held_back_->count != 0) release_oldest();
  free_record(held_back_, sizeof(HeldBack));
  held_back_ = nullptr;
}

bool PrivateHeap::poison_is_intact() const {
  for (unsigned i = 0; i < held_back(); ++i) {
    const CacheSlot& slot = held_back_->ring[(held_back_->first + i) % HeldBack::kPlaces];
    const size_t bytes = slot_bytes_of(slot);
    if (first_unpoisoned(slot.block, bytes) != bytes) return false;
  }
  return true;
}

}  // namespace loam
