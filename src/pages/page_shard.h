// One of the places where freed large runs are parked (parked_runs.h), with a lock of its own.
// Threads of different shards free and allocate runs of pages without contention.
//
// A slab belongs to the shard of the thread that first took from it while it was whole
// (Slab::shard). That ends when the slab is whole again, or when threads of another shard keep
// taking the runs that are freed in it (PageHeap::move_slab()). Runs freed in the slab are parked
// in its shard, whichever thread frees them, so that neighbours are under one lock. The bitmaps of
// slabs belong to the page heap, and count runs that are parked in a shard as used.
//
// A batch of surplus runs of a thread's cache, all of the last requested length, stands unchanged
// (standing_runs.h). The next request of that length takes the batch whole, and only then looks at
// its runs.
//
// Lock: `mutex`, after the page heap's. A thread that holds it takes another shard's lock only in
// order: both locks for a slab that moves, or all locks.
#pragma once

#include <atomic>

#include "map/records.h"
#include "os/mutex.h"
#include "pages/standing_runs.h"

namespace loam {

/// Two cache lines, because processors fetch lines in pairs: shards that different threads write
/// share no pair of lines.
struct alignas(128) PageShard {
  Mutex mutex;
  uint32_t pushes = 0;        ///< runs parked so far; written under the lock, read without it
  uint64_t parked_pages = 0;  ///< written under the lock, read without it
  uint64_t now_ms = 0;        ///< at the last look at the clock
  std::atomic<uint32_t> threads{0};          ///< threads whose own shard this is
  std::atomic<uint32_t> taken_elsewhere{0};  ///< runs that its threads took from other shards
  uint32_t asked = 0;     ///< pages of the last request in this shard; a hint, without the lock
  StandingRuns standing;  ///< batches
};

}  // namespace loam
