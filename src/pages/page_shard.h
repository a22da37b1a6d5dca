// One of the places where freed large runs are parked (parked_runs.h), with a lock of its own:
// threads of different shards free and allocate runs of pages without meeting.
//
// A block of pages belongs to the shard of the thread that first took from it while it was whole
// (Block::shard), until it is whole again or others live on what is freed in it
// (PageHeap::move_block()): what is freed in it is parked there, whoever frees it, so that
// neighbours meet under one lock. The bitmaps of blocks stay the page heap's, and count what is
// parked in a shard as used.
//
// A batch of runs that a thread's cache had too many of, all of the length that was asked for last,
// waits as it stands: the next request of that length takes it whole, and only then looks at its
// runs. A request of another length joins some to the parked runs first, and nothing that is not
// backed is taken before all of them.
//
// Lock: `mutex`, after the page heap's. Who holds it takes no other's, but in order: two for a
// block that moves, or all.
#pragma once

#include <atomic>

#include "map/records.h"
#include "os/mutex.h"

namespace loam {

/// Two cache lines, since processors fetch lines in pairs: what one thread writes is in no line of
/// another's.
struct alignas(128) PageShard {
  Mutex mutex;
  uint32_t pushes = 0;               ///< runs parked; written under the lock, read by anybody
  uint64_t parked_pages = 0;         ///< written under the lock, read by anybody
  uint64_t now_ms = 0;               ///< at the last look at the clock
  std::atomic<uint32_t> threads{0};  ///< that have it as their own
  std::atomic<uint32_t> taken_elsewhere{0};  ///< runs that its threads took out of other shards
  uint32_t asked = 0;  ///< pages of the last request that came here; a hint, without the lock
  List<Span> batches;  ///< the first runs of those that wait as they stand, the last come first
};

}  // namespace loam
