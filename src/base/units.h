// Units are types, so that a count of pages, a count of bytes and the number of a page cannot be
// mixed up.
//
//   Pages     how many 4 KiB heap pages; bytes() converts
//   PageId    the number of a page inside its 1 GiB region (0 .. kPagesPerRegion - 1)
//   SizeClass 0 means "not small: take the slow path"; 1 .. kSizeClassCount - 1 are classes
#pragma once

#include <compare>

#include "base/config.h"

namespace loam {

/// Bytes that two cores cannot write to at once without waiting for each other, on x86-64 and most
/// other processors.
inline constexpr size_t kCacheLine = 64;

inline constexpr unsigned kPageShift = 12;
inline constexpr size_t kPageBytes = size_t{1} << kPageShift;
inline constexpr unsigned kSlabShift = 21;  // a slab of 2 MiB: one huge page on x86-64 and aarch64
inline constexpr size_t kSlabBytes = size_t{1} << kSlabShift;
inline constexpr unsigned kPagesPerSlab = 1u << (kSlabShift - kPageShift);
inline constexpr unsigned kRegionShift = 30;
inline constexpr size_t kRegionBytes = size_t{1} << kRegionShift;
inline constexpr unsigned kPagesPerRegion = 1u << (kRegionShift - kPageShift);
inline constexpr unsigned kSlabsPerRegion = 1u << (kRegionShift - kSlabShift);
#if defined(__x86_64__)
inline constexpr unsigned kAddressBits =
    47;  // of user space; 48 would make the library's file 2 MiB longer, and a start slower
#else
inline constexpr unsigned kAddressBits = 48;  // aarch64
#endif

/// A count of 4 KiB heap pages.
struct Pages {
  size_t count = 0;

  constexpr Pages() = default;
  constexpr explicit Pages(size_t n) : count(n) {}
  [[nodiscard]] constexpr size_t bytes() const { return count << kPageShift; }
  /// The fewest pages that hold `bytes`. pre: bytes <= SIZE_MAX - kPageBytes
  [[nodiscard]] static constexpr Pages covering(size_t bytes) {
    return Pages((bytes + kPageBytes - 1) >> kPageShift);
  }
  constexpr auto operator<=>(const Pages&) const = default;
  constexpr Pages operator+(Pages other) const { return Pages(count + other.count); }
  constexpr Pages operator-(Pages other) const { return Pages(count - other.count); }
  constexpr Pages& operator+=(Pages other) {
    count += other.count;
    return *this;
  }
  constexpr Pages& operator-=(Pages other) {
    count -= other.count;
    return *this;
  }
};

/// The number of a page inside its region.
struct PageId {
  uint32_t index = 0;

  constexpr PageId() = default;
  constexpr explicit PageId(uint32_t i) : index(i) {}
  constexpr auto operator<=>(const PageId&) const = default;
  constexpr PageId operator+(Pages n) const {
    return PageId(index + static_cast<uint32_t>(n.count));
  }
};

enum class SizeClass : uint8_t {};
inline constexpr SizeClass kNoClass{0};
[[nodiscard]] constexpr unsigned index_of(SizeClass c) { return static_cast<unsigned>(c); }

[[nodiscard]] constexpr size_t round_up(size_t n, size_t power_of_two) {
  return (n + power_of_two - 1) & ~(power_of_two - 1);
}
[[nodiscard]] constexpr bool is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

static_assert(kPagesPerSlab == 512, "a slab's bitmaps are eight 64-bit words");
static_assert(kPagesPerRegion == 262144, "the page map of a region has one entry a page");

}  // namespace loam
