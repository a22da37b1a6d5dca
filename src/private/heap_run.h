// The record of one run of a private heap's pages: a span cut into slots, a large block, a mapping
// of its own, or memory that was set aside. It is plain data outside the memory that it describes.
// It is in the heap's list of runs, which is why a heap can be destroyed in O(runs).
//
//   address --> map --> Span (heap != 0) --> owned.run --> HeapRun --> heap, slot, state
//
// A private span's page class is 0, so malloc()'s and free()'s fast paths never see it.
//
// Every slot has a state of its own, in one byte:
//
//   kSlotFree    its bit in free_bits() is set             (no thread has it)
//   kSlotLive    the program has it
//   kSlotCached  a thread's cache has it
//
// In a heap of exact sizes a state has two bytes, and a live slot's state is the requested size
// plus 2. The holder of a slot writes its state: the thread with the heap's lock while the slot is
// free, the thread whose cache holds it, and the thread that frees it. So liveness of any pointer
// is exact at once, without a lock, and without atomics that cost more than a store. Only two
// threads that free one block at the same instant can both succeed; the second pointer is then
// refused when it leaves the cache.
//
// A mixed run has pieces instead of slots, and a block takes as many neighbouring pieces as it
// needs. Its first piece has its state and, in a byte behind the free bits, the number of further
// pieces. The further pieces have kSlotFree and a clear bit, so no pointer to them is taken for a
// block. The size class of the run is 0, and magazines of class 0 never have room, so caches do not
// hold its blocks. There are two kinds (mixed_runs.cpp): runs of equal pieces, and spans that a
// full heap cuts anew. In the second kind every slot becomes the same number of pieces, of which
// the last may be shorter, so that the live blocks stay where they are:
//
//   slot_bytes     |        slot 0         |        slot 1         |
//   piece_bytes    |  0  |  1  |  2  |  3 |  4  |  5  |  6  |  7 |
//                  offset_of(5) = slot_bytes + piece_bytes
//
// The span's former record stays beside the new one until the span goes, because a thread without
// the lock may read it.
//
//   record:  | header 96 B | states, 1 or 2 B a slot and one more | free bits, 8 B each 64 slots |
//            | of a mixed run: pieces
//            that follow a block's first, and the record that this one replaced |
//
// The span has everything of a run that loam_free() needs, so loam_free() does not touch the header
// above.
#pragma once

#include "map/page_map.h"
#include "small/size_classes.h"

namespace loam {

class PrivateHeap;

enum class RunUse : uint8_t {
  kSpan,      ///< slots of one class
  kMixed,     ///< pieces, from which blocks of all small classes take
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
  uint32_t slot_bytes;  ///< kSpan; kMixed: of the original slots, or of a piece
  union {
    uint32_t reciprocal;   ///< kSpan: slot of an offset = (offset * reciprocal) >> 32
    uint32_t piece_bytes;  ///< kMixed
  };
  uint16_t slots;      ///< kSpan; kMixed: pieces; otherwise 0: no pointer is a slot
  uint8_t size_class;  ///< kSpan
  RunUse use;
  bool exact;  ///< states take two bytes
  uint8_t list;
  uint16_t free_slots;
  Span* span;       ///< null for kHuge
  uint64_t serial;  ///< never used again: tells a walk that this is still the same run
  size_t bytes;     ///< of the pages or the mapping
  union {
    size_t requested;  ///< kLarge, kHuge: the requested bytes
    size_t longest;    ///< kMixed: upper bound of the longest stretch of free pieces, in bytes
  };

  /// There is one state more than slots: an address in a span's tail finds a state that says "not
  /// live".
  [[nodiscard]] static size_t state_bytes(unsigned slots, bool exact) {
    return round_up(size_t{slots + 1} << unsigned(exact), sizeof(uint64_t));
  }
  [[nodiscard]] uint64_t* free_bits() {
    return reinterpret_cast<uint64_t*>(reinterpret_cast<char*>(this + 1) +
                                       state_bytes(slots, exact));
  }
  /// First, so that the fast paths compute no offset.
  [[nodiscard]] LOAM_INLINE uint8_t* states() { return reinterpret_cast<uint8_t*>(this + 1); }
  [[nodiscard]] LOAM_INLINE uint8_t* state_of(size_t slot) {
    return states() + (slot << unsigned(exact));
  }
  [[nodiscard]] unsigned pieces_a_slot() const {
    return (slot_bytes + piece_bytes - 1) / piece_bytes;
  }
  /// The beginning of a slot or piece; for the number behind the last one, the end of the last one.
  [[nodiscard]] size_t offset_of(size_t slot) const {
    if (use != RunUse::kMixed) return slot * slot_bytes;
    const size_t each = pieces_a_slot();
    return slot / each * slot_bytes + slot % each * piece_bytes;
  }
  /// The first slot or piece that begins at the offset or behind it.
  [[nodiscard]] size_t slot_from(size_t offset) const {
    const size_t slot = offset / slot_bytes, rest = offset - slot * slot_bytes;
    if (use != RunUse::kMixed) return slot + (rest != 0);
    return slot * pieces_a_slot() + (rest + piece_bytes - 1) / piece_bytes;
  }
  [[nodiscard]] void* slot_address(size_t slot) const {
    return reinterpret_cast<void*>(base + offset_of(slot));
  }

  /// kMixed: the number of further pieces of the block that begins there.
  [[nodiscard]] uint8_t& more_pieces(size_t piece) {
    return reinterpret_cast<uint8_t*>(free_bits() + (slots + 63u) / 64)[piece];
  }
  static constexpr unsigned kMostPieces = 256;  ///< of a block: the range of a byte
  /// kMixed: the first piece behind the block that begins there, and the block's bytes.
  [[nodiscard]] size_t end_of(size_t piece) { return piece + more_pieces(piece) + 1u; }
  [[nodiscard]] size_t bytes_at(size_t piece) {
    return offset_of(end_of(piece)) - offset_of(piece);
  }
  /// kMixed: the record that this one replaced, or null.
  [[nodiscard]] HeapRun*& former() {
    return *reinterpret_cast<HeapRun**>(reinterpret_cast<char*>(this) + record_bytes() -
                                        sizeof(HeapRun*));
  }
  [[nodiscard]] bool is_free(size_t slot) {
    return ((free_bits()[slot / 64] >> (slot % 64)) & 1) != 0;
  }

  [[nodiscard]] static size_t record_bytes(unsigned slots, bool exact, bool mixed = false) {
    return sizeof(HeapRun) + state_bytes(slots, exact) + (slots + 63u) / 64 * sizeof(uint64_t) +
           (mixed ? round_up(size_t{slots}, sizeof(HeapRun*)) + sizeof(HeapRun*) : 0);
  }
  [[nodiscard]] size_t record_bytes() const {
    return record_bytes(slots, exact, use == RunUse::kMixed);
  }
};

inline constexpr uint8_t kNoHeapList = 0xff;
/// HeapRun::list of a record whose span was cut anew; the span names its new record.
inline constexpr uint8_t kReplacedRun = 0xfe;

/// Moves the run to one of a bin's lists, to its front, or to none (kNoHeapList).
LOAM_INLINE void move_to_list(HeapRun** lists, HeapRun* run, uint8_t list) {
  auto& link = static_cast<ListLink<HeapRun, PartialRuns>&>(*run);
  if (list == run->list) return;
  if (run->list != kNoHeapList) {
    (link.previous != nullptr ? link.previous->ListLink<HeapRun, PartialRuns>::next
                              : lists[run->list]) = link.next;
    if (link.next != nullptr) link.next->ListLink<HeapRun, PartialRuns>::previous = link.previous;
  }
  run->list = list;
  link = {list == kNoHeapList ? nullptr : lists[list], nullptr};
  if (list == kNoHeapList) return;
  if (link.next != nullptr) link.next->ListLink<HeapRun, PartialRuns>::previous = run;
  lists[list] = run;
}

[[nodiscard]] LOAM_INLINE unsigned load_state(const uint8_t* state, bool exact) {
  // relaxed: a live block's state was stored before its pointer was passed on, and passing it on
  // published the store
  return exact ? __atomic_load_n(reinterpret_cast<const uint16_t*>(state), __ATOMIC_RELAXED)
               : __atomic_load_n(state, __ATOMIC_RELAXED);
}
LOAM_INLINE void store_state(uint8_t* state, bool exact, unsigned value) {
  if (exact) {
    __atomic_store_n(reinterpret_cast<uint16_t*>(state), static_cast<uint16_t>(value),
                     __ATOMIC_RELAXED);
  } else {
    __atomic_store_n(state, static_cast<uint8_t>(value), __ATOMIC_RELAXED);
  }
}
/// The same for several slots. One-byte states use memset(): it stores no byte in parts.
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

/// The record of the span that the page of `block` names, whichever heap owns it. It is record 0,
/// which is never used, if the page names none. Null outside all regions.
[[nodiscard]] LOAM_INLINE const Span* span_named_at(const void* block) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  const Region* region = region_at(address);
  if (LOAM_UNLIKELY(region == nullptr)) return nullptr;
  size_t place =
      (address >> kPageShift) % kPagesPerRegion * sizeof(uint32_t);  // one shift and one mask
  asm("" : "+r"(place));  // otherwise an instruction of its own adds the array's place
  const uint32_t* const number =
      reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(region->page_span) + place);
  // Places of records fit 32 bits, and a parked run's tag and list fall off at their end: its
  // record has no owner.
  static_assert(kRecordsPerRegion * sizeof(Span) <= kFreeRunTag);
  static_assert(uint32_t{sizeof(Span)} << kFreeRunListShift == 0);
  const uint32_t offset = __atomic_load_n(number, __ATOMIC_RELAXED) * uint32_t{sizeof(Span)};
  const Span* const span = one_address(
      reinterpret_cast<const Span*>(reinterpret_cast<const char*>(region->spans) + offset));
  if (span == nullptr) __builtin_unreachable();  // saves the callers a test
  return span;
}

/// The span that covers the page of `address` if a private heap owns it, or null.
[[nodiscard]] LOAM_INLINE const Span* private_span_at(const void* block) {
  const Span* span = span_named_at(block);
  return span != nullptr && span->heap == kPrivateHeap ? span : nullptr;
}

/// The span's run; null after the span's publication and before the run's. pre: a private heap owns
/// the span
[[nodiscard]] LOAM_INLINE HeapRun* run_of(const Span* span) {
  return static_cast<HeapRun*>(
      __atomic_load_n(&span->owned.run, __ATOMIC_ACQUIRE));  // pairs with the release in set_run()
}
/// Makes the record the span's own; null: the span has no record any more.
LOAM_INLINE void set_run(Span* span, HeapRun* run) {
  // release: the record's content comes first; pairs with the acquire in run_of()
  __atomic_store_n(&span->owned.run, static_cast<void*>(run), __ATOMIC_RELEASE);
}

/// The private run whose pages hold `address`, by the map. For a large block only its first page
/// answers, for a huge block no page does. Null for every other address.
[[nodiscard]] LOAM_INLINE HeapRun* private_run_at(const void* block) {
  const Span* span = private_span_at(block);
  return span == nullptr ? nullptr : run_of(span);
}

}  // namespace loam
