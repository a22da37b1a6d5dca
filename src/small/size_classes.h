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

/// Above kMergedFrom, this many neighbouring classes begin as one: half of a doubling. Measured:
/// with smaller slots partly used spans cost less than rounding (decision 98).
inline constexpr unsigned kMergedClasses = 4;
inline constexpr size_t kMergedFrom = 4096;
/// The largest of the classes that begin as one with the class.
[[nodiscard]] constexpr unsigned merged_class(unsigned size_class) {
  return kSizeClasses[size_class].bytes <= kMergedFrom
             ? size_class
             : ((size_class - 1) | (kMergedClasses - 1)) + 1;
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
  // Either the multiple of the alignment is a class itself, or the classes around it are apart by a
  // larger power of two.
  const size_t rounded = bytes == 0 ? alignment : round_up(bytes, alignment);
  return rounded > kLargestSmall ? 0 : class_for(rounded);
}

/// True if a slot of a span of the class begins `offset` bytes from the span's start. Needs no
/// division. pre: offset is inside of the span
[[nodiscard]] LOAM_INLINE bool begins_slot(const SizeClassInfo& info, size_t offset) {
  const size_t slot = (offset * info.reciprocal) >> 32;
  return slot * info.bytes == offset && slot < info.slots;
}

static_assert(kMagazineCount <= 256, "the page map keeps one class byte a page");
static_assert(class_for(kMergedFrom) % kMergedClasses == 0 &&
                  (kSizeClassCount - 1) % kMergedClasses == 0,
              "merged_class() counts from class 1");
static_assert(kSizeClasses[kSizeClassCount - 1].bytes == kLargestSmall,
              "the table ends at the limit");

}  // namespace loam
