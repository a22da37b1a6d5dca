// The lengths of magazines by their class, and those of the arrays that hold them, in a thread's
// cache of the default heap (magazines.h). magazine_policy.h has the rules, by the size of a block.
#pragma once

#include "cache/magazine_policy.h"
#include "small/split_classes.h"

namespace loam {

/// Blocks of mixed spans have any size up to 8 KiB; each is counted as this many bytes.
inline constexpr size_t kMixedBytes = 512;

/// What a class did since the last collection. The collection armed its magazine, so the first
/// call after it is a slow one.
enum class Use : uint8_t { kNone, kHit, kMissed };

/// The length of a class's magazine, and what it follows from.
struct [[gnu::packed]] Tuning {
  using Way = magazine_policy::Way;
  uint16_t capacity : 12;  ///< slots of the array that the magazine may use; 0 = the class has no
                           ///< magazine
  Use use : 2;
  Way last_way : 2;
  uint8_t array_growths : 3;  ///< how often the array was doubled
  uint8_t idle : 5;           ///< collections since the class lost its magazine

  static constexpr unsigned kMostGrowths = 6;
  static constexpr unsigned kMostIdle = (1u << 5) - 1;
  void set_capacity(unsigned slots) { capacity = slots & 0xfffu; }
  void set_growths(unsigned growths) { array_growths = growths & 7u; }
  void note(Use now) {
    if (use < now) use = now;
  }
};
static_assert(magazine_policy::kMaxCapacity <= 0xfff, "a capacity's bits");
/// The slots of every other array at the start, so that kMostGrowths reach the longest. Moving a
/// magazine costs a look at all recent frees, some 700 instructions, and a thread that lives for
/// some hundred calls would pay that for every class that it uses. An array that is never filled
/// then takes four cache lines instead of one.
inline constexpr unsigned kFirstArray =
    ((magazine_policy::kMaxCapacity - 1) >> Tuning::kMostGrowths) + 1;

[[nodiscard]] LOAM_INLINE size_t block_bytes(unsigned size_class) {
  return LOAM_UNLIKELY(size_class == kMixedClass) ? kMixedBytes : class_info(size_class).bytes;
}

[[nodiscard]] inline unsigned initial_capacity(unsigned size_class) {
  return magazine_policy::initial_capacity(block_bytes(size_class));
}

/// The most slots of a class's magazine. A thread only frees blocks of mixed spans, so that
/// magazine is used one way.
[[nodiscard]] inline unsigned max_capacity(unsigned size_class) {
  return LOAM_UNLIKELY(size_class == kMixedClass) ? magazine_policy::kOneWayCapacity
                                                  : magazine_policy::kMaxCapacity;
}

/// Whether the class's array has its full length from the start, and stays where it is until its
/// thread ends. The array for blocks of mixed spans does, because other threads read its pointers
/// to find the blocks' sizes.
[[nodiscard]] inline bool has_fixed_array(unsigned size_class) { return size_class == kMixedClass; }

/// The slots of an array that was doubled `growths` times; at most what its magazine may use.
[[nodiscard]] unsigned array_slots(unsigned size_class, unsigned growths);

[[nodiscard]] inline size_t array_bytes(unsigned size_class, unsigned growths) {
  return array_slots(size_class, growths) * sizeof(void*);
}

}  // namespace loam
