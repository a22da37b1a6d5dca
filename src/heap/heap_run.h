// What a private heap knows of one run of its pages: a span cut into slots, a large block, an own mapping, or
// memory that was set aside. Plain data, out of the memory that it describes; it stands in the heap's list of
// runs, which is why a heap can be destroyed in O(runs).
//
//   address --> map --> Span (heap != 0) --> owned.run --> HeapRun --> heap, slot, state
//
// A private span's page class is 0, so malloc()'s and free()'s fast paths never see it.
//
// Every slot has a state of its own, in one byte:
//
//   kSlotFree    its bit in free_bits() is set             (nobody has it)
//   kSlotLive    the program has it
//   kSlotCached  a thread's cache has it
//
// in a heap of exact sizes in two bytes, and a live slot's state is the size that was asked for, plus 2. A
// state is written by who holds the slot: under the heap's lock while it is free, by the thread whose
// cache holds it, by the thread that frees it. So liveness of any pointer is exact at once, without a lock
// and without atomics dearer than a store; only two threads that free one block at the same instant can
// both succeed, and then the second pointer is refused when it goes home.
//
// A starter page has 256 granules in the place of slots. A block's first granule has its state and, in a
// byte behind the states, its class; its other granules have kSlotFree and a clear bit, so no pointer to
// them is taken for a block. Its size class is 0, and magazines of class 0 never have room: caches pass it
// by.
//
//   record:  | header 96 B | states, 1 or 2 B a slot and one more | free bits, 8 B each 64 slots | classes of a
//            starter page |
//
// What loam_free() wants of a run stands in its span too, so the header above is not touched there.
#pragma once

#include "map/page_map.h"
#include "small/size_classes.h"

namespace loam {

class PrivateHeap;

enum class RunUse : uint8_t {
  kSpan,      ///< slots of one class
  kStarter,   ///< a page that blocks of all small classes share while the heap is small: granules of 16 bytes
  kLarge,     ///< one block of whole pages, in a region
  kHuge,      ///< one block, a mapping of its own
  kSetAside,  ///< pages that the heap took at its creation and has not used yet
};

inline constexpr unsigned kSlotFree = 0;
inline constexpr unsigned kSlotCached = 1;
inline constexpr unsigned kSlotLive = 2;  // or more, in a heap of exact sizes

struct PartialRuns;  // tag: spans of one class by occupancy

struct HeapRun : ListLink<HeapRun>, ListLink<HeapRun, PartialRuns> {
  PrivateHeap* heap;
  uintptr_t base;       ///< address of the first page
  uint32_t slot_bytes;  ///< kSpan
  uint32_t reciprocal;  ///< kSpan: slot of an offset = (offset * reciprocal) >> 32
  uint16_t slots;       ///< kSpan; 0 for the others, so no pointer is a slot of them
  uint8_t size_class;   ///< kSpan
  RunUse use;
  bool exact;  ///< states take two bytes
  uint8_t list;
  uint16_t free_slots;
  Span* span;        ///< null for kHuge
  uint64_t serial;   ///< never used again: tells a walk that this is still the run it stood in
  size_t bytes;      ///< of the pages or the mapping
  size_t requested;  ///< kLarge, kHuge: bytes that were asked for

  /// One more than there are slots: an address in the tail of a span meets a state that says "not live".
  [[nodiscard]] static size_t state_bytes(unsigned slots, bool exact) {
    return round_up(size_t{slots + 1} << unsigned(exact), sizeof(uint64_t));
  }
  [[nodiscard]] uint64_t* free_bits() {
    return reinterpret_cast<uint64_t*>(reinterpret_cast<char*>(this + 1) + state_bytes(slots, exact));
  }
  /// First, so that the fast paths compute no offset.
  [[nodiscard]] LOAM_INLINE uint8_t* states() { return reinterpret_cast<uint8_t*>(this + 1); }
  [[nodiscard]] LOAM_INLINE uint8_t* state_of(size_t slot) { return states() + (slot << unsigned(exact)); }
  [[nodiscard]] void* slot_address(size_t slot) const {
    return reinterpret_cast<void*>(base + slot * slot_bytes);
  }

  /// Starter pages: the class of the block that begins in a granule.
  [[nodiscard]] uint8_t& class_of(size_t granule) {
    return reinterpret_cast<uint8_t*>(free_bits() + (slots + 63u) / 64)[granule];
  }

  [[nodiscard]] static size_t record_bytes(unsigned slots, bool exact, bool classes = false) {
    return sizeof(HeapRun) + state_bytes(slots, exact) + (slots + 63u) / 64 * sizeof(uint64_t) +
           (classes ? slots : 0);
  }
  [[nodiscard]] size_t record_bytes() const { return record_bytes(slots, exact, use == RunUse::kStarter); }
};

[[nodiscard]] LOAM_INLINE unsigned load_state(const uint8_t* state, bool exact) {
  // relaxed: a live block's state was stored before its pointer was passed on, by whatever passed it
  return exact ? __atomic_load_n(reinterpret_cast<const uint16_t*>(state), __ATOMIC_RELAXED)
               : __atomic_load_n(state, __ATOMIC_RELAXED);
}
LOAM_INLINE void store_state(uint8_t* state, bool exact, unsigned value) {
  if (exact) {
    __atomic_store_n(reinterpret_cast<uint16_t*>(state), static_cast<uint16_t>(value), __ATOMIC_RELAXED);
  } else {
    __atomic_store_n(state, static_cast<uint8_t>(value), __ATOMIC_RELAXED);
  }
}
/// The same of so many slots. Where a state is a byte, by memset(): it stores no byte in parts.
LOAM_INLINE void store_states(uint8_t* states, bool exact, unsigned count, unsigned value) {
  if (LOAM_LIKELY(!exact && !LOAM_THREAD_SANITIZER)) {
    __builtin_memset(states, static_cast<int>(value), count);
    return;
  }
  for (unsigned i = 0; i < count; ++i) store_state(states + (i << unsigned(exact)), exact, value);
}
/// The state of a live block of `bytes` bytes.
[[nodiscard]] LOAM_INLINE unsigned live_state(bool exact, size_t bytes) {
  return exact ? static_cast<unsigned>(bytes) + kSlotLive : kSlotLive;
}
static_assert(kLargestSmall + kSlotLive <= 0xffff, "a size and two states fit 16 bits");

/// The span's record that the page of `block` names, whoever's it is: record 0, which is never used, where it names
/// none. Null outside all regions.
[[nodiscard]] LOAM_INLINE const Span* span_named_at(const void* block) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  const Region* region = region_at(address);
  if (LOAM_UNLIKELY(region == nullptr)) return nullptr;
  size_t place = (address >> kPageShift) % kPagesPerRegion * sizeof(uint32_t);  // one shift and one mask
  asm("" : "+r"(place));  // or the array's own place is added to it, in an instruction of its own
  const uint32_t* const number =
      reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(region->page_span) + place);
  // Records' places fit 32 bits, and a parked run's tag and list fall off at their end: its record is nobody's.
  static_assert(kRecordsPerRegion * sizeof(Span) <= kFreeRunTag);
  static_assert(uint32_t{sizeof(Span)} << kFreeRunListShift == 0);
  const uint32_t offset = __atomic_load_n(number, __ATOMIC_RELAXED) * uint32_t{sizeof(Span)};
  const Span* const span =
      one_address(reinterpret_cast<const Span*>(reinterpret_cast<const char*>(region->spans) + offset));
  if (span == nullptr) __builtin_unreachable();  // saves callers their test
  return span;
}

/// The span that covers the page of `address` if it is a private heap's, or null.
[[nodiscard]] LOAM_INLINE const Span* private_span_at(const void* block) {
  const Span* span = span_named_at(block);
  return span != nullptr && span->heap == kPrivateHeap ? span : nullptr;
}

/// Its run; null between its publication and the run's. pre: a private heap's
[[nodiscard]] LOAM_INLINE HeapRun* run_of(const Span* span) {
  return __atomic_load_n(&span->owned.run, __ATOMIC_ACQUIRE);  // pairs with the release where it is made
}

/// The private run whose pages hold `address`, as far as the map knows: of a large block its first page
/// answers, of a huge one nothing does. Null for everything else.
[[nodiscard]] LOAM_INLINE HeapRun* private_run_at(const void* block) {
  const Span* span = private_span_at(block);
  return span == nullptr ? nullptr : run_of(span);
}

}  // namespace loam
