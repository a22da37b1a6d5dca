// From a size to its class, in one table load.
//
// Tables: bytes up to 1,024 in steps of 16, up to 32 KiB in steps of 64. They are computed at
// compile time from the generated table of classes, and are read-only data shared by all processes.
#pragma once

#include "small/size_class_table.h"

namespace loam {

inline constexpr size_t kFineLimit = 1024;

/// The number of the magazine, and the class byte of pages, for blocks of mixed spans
/// (mixed_heap.h), whatever their size.
inline constexpr unsigned kMixedClass = kSizeClassCount;
/// The most classes beyond the fixed ones (split_classes.h). Chosen: programs that fill their heaps
/// with blocks of one size have a few such sizes; each class costs a thread's cache 37 bytes.
inline constexpr unsigned kMostSplitClasses = 16;
inline constexpr unsigned kMagazineCount = kMixedClass + 1 + kMostSplitClasses;

/// Above kMergedFrom, up to this many neighbouring classes begin as one: four of the eight of a
/// doubling, then three. Slots of a power of two would all begin at the same offset in a page.
/// Measured: with smaller slots partly used spans cost less than rounding (decision 98).
inline constexpr unsigned kMergedClasses = 4;
inline constexpr size_t kMergedFrom = 4096;
/// The largest of the classes that begin as one with the class.
[[nodiscard]] constexpr unsigned merged_class(unsigned size_class) {
  const unsigned of_eight = size_class % (2 * kMergedClasses);
  if (kSizeClasses[size_class].bytes <= kMergedFrom || of_eight == 0) return size_class;
  return size_class - of_eight +
         (of_eight <= kMergedClasses ? kMergedClasses : 2 * kMergedClasses - 1);
}

namespace detail {

struct ClassTables {
  uint8_t fine[kFineLimit / 16 + 1];
  uint8_t coarse[kLargestSmall / 64 + 1];
  uint8_t merged[kLargestSmall / 64 + 1];
};

constexpr ClassTables make_class_tables() {
  ClassTables t{};
  unsigned c = 1;
  for (size_t i = 0; i <= kFineLimit / 16; ++i) {
    while (kSizeClasses[c].bytes < i * 16) ++c;
    t.fine[i] = static_cast<uint8_t>(c);
  }
  c = 1;
  for (size_t i = 0; i <= kLargestSmall / 64; ++i) {
    while (kSizeClasses[c].bytes < i * 64) ++c;
    t.coarse[i] = static_cast<uint8_t>(c);
    t.merged[i] = static_cast<uint8_t>(merged_class(c));
  }
  return t;
}

inline constexpr ClassTables kClassTables = make_class_tables();

}  // namespace detail

/// pre: bytes <= kFineLimit. Zero bytes get the smallest class: their pointer is unique.
[[nodiscard]] LOAM_INLINE constexpr unsigned fine_class(size_t bytes) {
  return detail::kClassTables.fine[(bytes + 15) >> 4];
}

/// pre: bytes <= kLargestSmall
[[nodiscard]] LOAM_INLINE constexpr unsigned class_for(size_t bytes) {
  return bytes <= kFineLimit ? fine_class(bytes) : detail::kClassTables.coarse[(bytes + 63) >> 6];
}

/// The smallest class for `bytes` whose every slot is a multiple of `alignment`; 0 if there is
/// none. pre: alignment is a power of two
[[nodiscard]] inline unsigned class_for_aligned(size_t bytes, size_t alignment) {
  if (alignment > kPageBytes || bytes > kLargestSmall) return 0;
  const size_t rounded = bytes == 0 ? alignment : round_up(bytes, alignment);
  if (rounded > kLargestSmall) return 0;
  // Ends at a power of two at the latest.
  unsigned size_class = class_for(rounded);
  while (kSizeClasses[size_class].bytes % alignment != 0) ++size_class;
  return size_class;
}

/// True if a slot of a span of the class begins `offset` bytes from the span's start. Needs no
/// division. pre: offset is inside of the span
[[nodiscard]] LOAM_INLINE bool begins_slot(const SizeClassInfo& info, size_t offset) {
  const size_t slot = (offset * info.reciprocal) >> 32;
  return slot * info.bytes == offset && slot < info.slots;
}

static_assert(kMagazineCount <= 256, "the page map keeps one class byte a page");
static_assert(class_for(kMergedFrom) % (2 * kMergedClasses) == 0 &&
                  (kSizeClassCount - 1) % (2 * kMergedClasses) == 0,
              "a power of two is the last of eight classes");
static_assert(kSizeClasses[kSizeClassCount - 1].bytes == kLargestSmall,
              "the table ends at the limit");

}  // namespace loam
