// The counters of formats/counters.toml, read from inside: figures under the heap's locks, and what
// is derived from them. Readers in other processes derive the same from counter_directory.h.
//
// Thread-safe. No lock is held between the records, so under load the sums are of slightly
// different moments.
#pragma once

#include <loam/loam.h>

#include "counters/counter_list.h"
#include "pages/page_heap.h"
#include "small/split_classes.h"

namespace loam::stats {

inline constexpr uint64_t kUnknown = UINT64_MAX;
inline constexpr unsigned kOccupancyBuckets = 9;

/// Values by CounterId; a ratio is the bit pattern of a double. kUnknown is also a NaN.
struct Values {
  uint64_t of[kCounterCount];
};

struct Class {
  Values values;  ///< the counters of scope class
  uint64_t occupancy[kOccupancyBuckets];
};

struct LockFigures {
  char name[32];
  uint64_t taken;
  uint64_t waited;
  uint64_t refused;
};

/// The default heap, whose handle is the api layer's.
[[nodiscard]] inline loam_heap* default_heap() {
  return reinterpret_cast<loam_heap*>(uintptr_t{1});
}

/// Null: the process. False when `heap` is none.
[[nodiscard]] bool read(loam_heap* heap, Values* out);
/// Null: the default heap. pre: class_number() of something
[[nodiscard]] bool read_class(loam_heap* heap, unsigned size_class, Class* out);
/// False when there are not so many.
[[nodiscard]] bool read_lock(unsigned index, LockFigures* out);

enum class Histogram { kFreeRuns, kUnbackedRuns, kAllocTime, kFreeTime };
inline constexpr unsigned kHistogramBins = 32;
/// How many bins there are; 0 when unknown.
[[nodiscard]] unsigned read_histogram(Histogram which, uint64_t (&out)[kHistogramBins]);

/// A private heap by its place in the registry; null when there are not so many.
struct HeapName {
  char name[32];
  uint64_t generation;
};
[[nodiscard]] loam_heap* private_heap_at(unsigned index, HeapName* out);

}  // namespace loam::stats
