// The counters of formats/counters.toml, read inside the process: figures under the heap's locks,
// and counters derived from them. Readers in other processes derive the same from
// counter_directory.h.
//
// Thread-safe. No lock is held between two records, so while other threads allocate, the sums are
// of slightly different moments.
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

/// The default heap; the api layer defines its handle.
[[nodiscard]] inline loam_heap* default_heap() {
  return reinterpret_cast<loam_heap*>(uintptr_t{1});
}

/// Null means the process. False when `heap` is no heap.
[[nodiscard]] bool read(loam_heap* heap, Values* out);
/// Null means the default heap. pre: size_class is the class_number() of a class
[[nodiscard]] bool read_class(loam_heap* heap, unsigned size_class, Class* out);
/// False when there are fewer locks.
[[nodiscard]] bool read_lock(unsigned index, LockFigures* out);

enum class Histogram { kFreeRuns, kUnbackedRuns, kAllocTime, kFreeTime };
inline constexpr unsigned kHistogramBins = 32;
/// Returns the number of bins; 0 when the histogram is unknown.
[[nodiscard]] unsigned read_histogram(Histogram which, uint64_t (&out)[kHistogramBins]);

/// A private heap by its index in the registry; null when there are fewer.
struct HeapName {
  char name[32];
  uint64_t generation;
};
[[nodiscard]] loam_heap* private_heap_at(unsigned index, HeapName* out);

}  // namespace loam::stats
