// The request pattern of the low-fragmentation-heap analysis (article 001), for `lfh` and
// `contention`: slots of nine prime sizes, a fixed number of each. A step picks one slot at random,
// and allocates it if it is empty, or frees it otherwise.
//
// Counts fall with size, so that small blocks dominate the number and no size dominates the bytes.
// Half of the slots are full on average. The static_asserts below state the results: 228 k slots
// hold 446 MB when all are full and about 223 MB on average. A step touches 0.7 pages on average,
// so that the allocator takes the time and not the touching.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "harness/block.h"
#include "harness/latency.h"
#include "harness/random.h"
#include "harness/system.h"

namespace lab {

struct SlotSize {
  uint32_t bytes;
  uint32_t count;  // at scale 100
};

inline constexpr SlotSize kSlotSizes[] = {
    {169, 80'000},  {251, 60'000},  {577, 40'000}, {1009, 30'000}, {4127, 12'000},
    {19139, 4'000}, {49069, 1'600}, {499033, 160}, {999113, 80},
};

constexpr uint64_t slot_count_at_scale(uint64_t percent) {
  uint64_t n = 0;
  for (const auto& s : kSlotSizes) n += s.count * percent / 100;
  return n;
}
constexpr uint64_t full_bytes() {
  uint64_t n = 0;
  for (const auto& s : kSlotSizes) n += uint64_t{s.bytes} * s.count;
  return n;
}
static_assert(slot_count_at_scale(100) == 227'840, "the header states it");
static_assert(full_bytes() / 2 > 200'000'000 && full_bytes() / 2 < 300'000'000,
              "live bytes at rest: large beside any cache, small beside any machine's memory");

// malloc as the allocator of slots; a private heap has its own.
struct SharedHeap {
  void* allocate(uint32_t bytes) { return std::malloc(bytes); }
  void free(void* block, uint32_t) { std::free(block); }
};

// One thread's share of the slots. Not synchronised.
template <typename Heap = SharedHeap>
class Slots {
 public:
  // Share `part` of `parts`: every size is divided as evenly as possible, each part at least one.
  Slots(Scratch& scratch, uint64_t seed, uint64_t percent, unsigned part, unsigned parts,
        LatencySampler sampler, Heap heap = {})
      : random_(stream(seed, part)), sampler_(sampler), heap_(heap) {
    uint32_t counts[std::size(kSlotSizes)], total = 0;
    for (size_t i = 0; i < std::size(kSlotSizes); ++i) {
      const uint64_t all = kSlotSizes[i].count * percent / 100;
      counts[i] = static_cast<uint32_t>(all * (part + 1) / parts - all * part / parts);
      if (counts[i] == 0) counts[i] = 1;
      total += counts[i];
    }
    slots_ = scratch.take<Slot>(total);
    for (size_t i = 0; i < std::size(kSlotSizes); ++i) {
      for (uint32_t k = 0; k < counts[i]; ++k) slots_[count_++] = {nullptr, kSlotSizes[i].bytes};
    }
  }

  void run(uint64_t steps) {
    for (uint64_t i = 0; i < steps; ++i) {
      const uint32_t pick = random_.below(count_);
      Slot& slot = slots_[pick];
      checksum_.add(pick * 2 + (slot.block == nullptr));
      sampler_.run([&] { toggle(slot); });
    }
  }

  // Returns the number of blocks.
  uint64_t free_all() {
    uint64_t freed = 0;
    for (Slot* slot = slots_; slot != slots_ + count_; ++slot) {
      if (!slot->block) continue;
      toggle(*slot);
      ++freed;
    }
    return freed;
  }

  // Bytes of scratch memory that `parts` shares need in all.
  static size_t scratch_bytes(uint64_t percent, unsigned parts) {
    return (slot_count_at_scale(percent) + std::size(kSlotSizes) * parts) * sizeof(Slot) +
           parts * size_t{64};
  }

  uint64_t live_bytes() const { return live_bytes_; }
  uint64_t checksum() const { return checksum_.value(); }
  uint64_t size() const { return count_; }
  LatencySampler& sampler() { return sampler_; }

 private:
  struct Slot {
    void* block;
    uint32_t bytes;
  };

  void toggle(Slot& slot) {
    if (slot.block) {
      heap_.free(slot.block, slot.bytes);
      slot.block = nullptr;
      live_bytes_ -= slot.bytes;
    } else {
      slot.block = must(heap_.allocate(slot.bytes), slot.bytes);
      touch(slot.block, slot.bytes);
      live_bytes_ += slot.bytes;
    }
  }

  Slot* slots_ = nullptr;
  uint32_t count_ = 0;
  Random random_;
  LatencySampler sampler_;
  Checksum checksum_;
  Heap heap_;
  uint64_t live_bytes_ = 0;
};

}  // namespace lab
