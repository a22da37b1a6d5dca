// Checks of freed pointers: a block must begin there, and it must not be free.
//
// A freed pointer may begin no block, but point into one. The fast path takes it like any other,
// and the next malloc would hand it out. So wherever a free is slow already, the cache checks that
// pointer and a share of the pointers in the magazine: in each look (about every 256 frees), in
// each batch for another thread, and at the process's end in all magazines. seems_wrong() is a hint
// that takes no lock. A pointer that it names leaves the magazine for the bin, which decides under
// its lock, and reports. A good block that was named by mistake would only have returned to its
// span (decision 69).
//
// With full checking (LOAM_CHECK_FREE=full) magazines stay armed for ever, and every free is
// checked against span and magazines at once (is_block_in_use()).
#pragma once

#include "base/cpu.h"
#include "map/page_map.h"
#include "small/split_classes.h"

namespace loam {

/// Whether a pointer that was freed as a block of the class begins no block, or a free one. A hint,
/// without a lock: a live block keeps its span, and the span keeps its first page and its class.
/// But the span may become partial, or mixed, at any moment. Blocks of mixed spans are checked only
/// under their lock.
[[nodiscard]] LOAM_INLINE bool seems_wrong(unsigned size_class, const SizeClassInfo& info,
                                           const void* block, const Span* span) {
  constexpr uint32_t kClassAndKind = Span::label_of(SizeClass(0xff), 0, SpanKind(0xff), 0);
  const uint32_t label = span->label() & kClassAndKind;
  if (LOAM_UNLIKELY(label != Span::label_of(SizeClass(size_class), 0, SpanKind::kSmall, 0)) &&
      label != Span::label_of(SizeClass(size_class), 0, SpanKind::kPartial, 0)) {
    return span->run_kind() != SpanKind::kMixed;
  }
  // As mark_slot() in small/bin.cpp.
  const uint64_t quotient = uint64_t{offset_in(span, block)} * info.reciprocal;
  if (LOAM_UNLIKELY(static_cast<uint32_t>(quotient) >= info.reciprocal)) return true;
  const uint64_t slot = quotient >> 32;
  if (LOAM_UNLIKELY(slot >= info.slots)) return true;
  return ((__atomic_load_n(&span->free_bits[slot >> 6], __ATOMIC_RELAXED) >> (slot & 63)) & 1) != 0;
}

/// When a thread's frees are looked at, and at which pointers.
class PointerChecks {
 public:
  static constexpr uint32_t kFreesPerLook = 256;
  /// The distance between looks varies by half of this, up and down. With less, a program that
  /// frees in rounds shows the same block to many looks (decision 69).
  static constexpr uint32_t kLookJitter = kFreesPerLook / 4;
  /// Each look checks one of this many pointers in its magazine, and one more. Chosen: in 100,000
  /// frees each is checked six times or more. More checks slow programs with long magazines; fewer
  /// let a wrong pointer be handed out for longer (decision 69).
  static constexpr unsigned kCheckedShare = 64;
  /// One of this many is checked in a batch that another thread gets, because no bin sees it.
  /// Chosen: 99 of 100 wrong pointers are found within fifty journeys.
  static constexpr unsigned kCheckedOfBatch = 8;

  struct Nothing {};
  /// All zero, for the caches that hold nothing.
  constexpr explicit PointerChecks(Nothing) : until_look_(0) {}
  constexpr PointerChecks() = default;

  /// Counts a free; true where the next look is due. So even a thread that never misses its cache
  /// takes a slow call now and then.
  [[nodiscard]] LOAM_INLINE bool is_look_due() { return count_down(until_look_); }
  /// A thread that misses has enough slow calls, and gets no extra call for a look.
  [[nodiscard]] bool is_look_near() const { return until_look_ <= kFreesPerLook / 2; }
  /// Frees that were counted.
  [[nodiscard]] uint64_t counted() const {
    const uint32_t left = __atomic_load_n(&until_look_, __ATOMIC_RELAXED);
    // The free that counted to zero took the slow path.
    return __atomic_load_n(&counted_, __ATOMIC_RELAXED) + kFreesPerLook - (left == 0 ? 1 : left);
  }
  void begin_next_look() {
    static_assert((kLookJitter & (kLookJitter - 1)) == 0 && kLookJitter <= kFreesPerLook,
                  "chance's top bits; counted_ >= 0");
    const uint64_t total = counted();
    chance_ = chance_ * 1664525 + 1013904223;  // Knuth and Lewis
    const uint32_t frees = kFreesPerLook - kLookJitter / 2 +
                           static_cast<uint32_t>((uint64_t{chance_} * kLookJitter) >> 32);
    __atomic_store_n(&counted_, total + frees - kFreesPerLook, __ATOMIC_RELAXED);
    __atomic_store_n(&until_look_, frees, __ATOMIC_RELAXED);
  }
  /// For a cache whose thread has ended.
  void reset() {
    counted_ = 0;
    until_look_ = kFreesPerLook;
  }

  /// Checks so many of the blocks. The place of a pointer that seems wrong, or null.
  [[nodiscard]] LOAM_INLINE void** find_wrong(unsigned size_class, const SizeClassInfo& info,
                                              void** base, unsigned held, unsigned checks,
                                              SpanFinder& spans) const {
    if (held == 0) return nullptr;
    // A number that is independent of the distance: without the bits that chose it.
    unsigned at = static_cast<unsigned>((uint64_t{chance_ * kLookJitter} * held) >> 32);
    for (; checks != 0; --checks) {
      void** const place = base + at;
      if (LOAM_UNLIKELY(
              seems_wrong(size_class, info, *place, spans.at(reinterpret_cast<uintptr_t>(*place)))))
        return place;
      if (++at == held) at = 0;
    }
    return nullptr;
  }

 private:
  friend struct CounterFields;
  uint32_t until_look_ = kFreesPerLook;  ///< frees until the next slow call
  uint32_t chance_ = 0;  ///< a pseudo-random sequence: it decides when looks come, and which blocks
                         ///< they check
  uint64_t counted_ = 0;  ///< frees up to the last look, plus the countdown's start, less
                          ///< kFreesPerLook: counted() adds the rest
};

/// Checks a block of the class about which nothing else is known: looks at its span and at all
/// caches. Reports a double free (`freed`: already known to be one) or a pointer into a block's
/// middle, and returns false. O(threads * blocks held).
[[nodiscard]] bool is_block_in_use(unsigned size_class, const void* block, bool freed);

}  // namespace loam
