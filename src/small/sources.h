// The sources of the blocks of a refill, in their order: idle memory first, fresh pages last.
// SmallHeap::take_from() serves from each source (sources.cpp).
#pragma once

#include <cstdint>

namespace loam {

enum class BlockSource : uint8_t {
  kStash,
  kBin,
  kShortRuns,
  kMixedSpans,
  kDonor,
  kOtherParts,
  kEmptySpans,
  kOtherBins,
  kLender,
  kFreshPages,
};

/// Requests that have the same sources. Each is a bit in BlockSourceRow::serves.
enum BlockSourceUser : uint8_t {
  kUpTo1KiB = 1,
  kUpTo8KiB = 2,
  kAbove8KiB = 4,
  kOwnSlots = 8,  ///< blocks that must be slots of spans of their class
  kRefused = 16,  ///< any of the first three, again, after the system refused fresh pages
};

struct BlockSourceRow {
  BlockSource source;
  uint8_t serves;  ///< BlockSourceUser bits
  char name[14];
  char what[64];
};

inline constexpr uint8_t kMixable = kUpTo1KiB | kUpTo8KiB;  // classes that mixed spans serve
inline constexpr uint8_t kAnyClass = kMixable | kAbove8KiB;

inline constexpr unsigned kBlockSources = 10;
/// In the order in which they serve.
inline constexpr BlockSourceRow kBlockSourceRows[kBlockSources] = {
    {BlockSource::kStash, kAnyClass, "stash", "a batch that another thread freed"},
    {BlockSource::kBin, kAnyClass | kOwnSlots, "bin", "free slots of the class, backed runs"},
    {BlockSource::kShortRuns, kUpTo8KiB | kAbove8KiB | kRefused, "short runs",
     "backed runs that are shorter than a span"},
    {BlockSource::kMixedSpans, kMixable, "mixed spans", "free ranges of mixed spans"},
    {BlockSource::kDonor, kMixable | kRefused, "donor", "sparse spans of another class"},
    {BlockSource::kOtherParts, kMixable, "other parts", "mixed spans of other homes"},
    {BlockSource::kEmptySpans, kAnyClass | kOwnSlots, "empty spans", "what bins of any class keep"},
    {BlockSource::kOtherBins, kAnyClass | kOwnSlots, "other bins", "free slots of other homes"},
    {BlockSource::kLender, kAnyClass | kRefused, "lender", "whole free pages of sparse spans"},
    {BlockSource::kFreshPages, kAnyClass | kOwnSlots, "fresh pages", "pages that hold no memory"},
};

}  // namespace loam
