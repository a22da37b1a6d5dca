// Blocks that each have a mapping of their own between inaccessible pages: the large blocks of the
// hardened heap, and those that LOAM_HARDEN=sample picks (guard_sampler.h). After a free only the
// block's addresses are held, which costs no memory. So a later use of the block faults, a second
// free is reported, and no other block lies there meanwhile.
//
//   live:   | wall: no access | block, canary up to the page's end | wall: no access |
//   freed:  | no access, no memory                                                  |
//           until kMostHeld or kMostHeldBytes came after
//
// Of a sampled block also the callers of its allocation are kept, for reports: in a table while it
// lives, and with its addresses from then on.
//
//   held_bytes_ <= kMostHeldBytes;   count_ <= kMostHeld
//   the held ones are the newest count_ of a ring
//
// Live blocks are in the table of huge blocks (pages/huge_map.h), as blocks with walls.
// Thread-safe; the lock is below the table's.
#pragma once

#include <atomic>

#include "cache/resizing.h"
#include "os/mutex.h"
#include "os/os.h"
#include "pages/huge_map.h"

namespace loam {

class WalledBlocks {
 public:
  constexpr WalledBlocks() = default;

  /// Bound: most live blocks, beyond which they have no walls. Each costs the system two mappings,
  /// of which a process may have 65,530: half of them (decision 71).
  static constexpr size_t kMostLive = size_t{1} << 14;
  /// Most live blocks of a sample: each holds a page. Chosen: 4 MiB.
  static constexpr size_t kMostSampled = size_t{1} << 10;
  /// Bound: most freed blocks that are held, until the oldest is forgotten. Neighbours join, so
  /// they are fewer mappings.
  static constexpr size_t kMostHeld = size_t{1} << 13;
  /// Bound: most addresses that are held: a ten-thousandth of a process's. 16 GiB
  static constexpr size_t kMostHeldBytes = size_t{1} << 34;
  /// Bound: a wall of a large block, into which it may grow, is as long as an eighth of it, and at
  /// least this long. An index that is wrong by more may pass over it. 64 KiB
  static constexpr size_t kLeastWall = size_t{64} << 10;

  /// Bound: callers of an allocation that are kept, the innermost ones. With them a report is one
  /// line.
  static constexpr size_t kCallers = 6;

  struct Site {
    uintptr_t block;                ///< 0: no block
    const void* callers[kCallers];  ///< null behind the last one
    uint32_t thread;
  };

  struct Freed {
    uintptr_t begin;  ///< 0: no block
    size_t whole;
    uintptr_t block;
    size_t requested;
    const void* caller;
    uint32_t thread;
    Site allocated;
  };

  /// Call before threads start; `most_live` is the limit on live blocks. False when the system
  /// refuses memory.
  [[nodiscard]] bool start(size_t most_live);
  [[nodiscard]] bool on() const { return ring_ != nullptr; }

  /// A block of `bytes`, with at least `canary` bytes behind them; it is zero. `wall`: least bytes
  /// of the wall on each side. `right`: the block ends where its last page ends, as far as
  /// alignment allows. Null when there are too many, or the system refuses memory.
  [[nodiscard]] void* allocate(size_t bytes, size_t canary, size_t alignment, size_t wall,
                               bool right);
  [[nodiscard]] static size_t wall_for(size_t bytes) {
    return bytes / kSmallStepShare < kLeastWall ? kLeastWall : bytes / kSmallStepShare;
  }

  /// Makes the block longer into its wall, or shorter: the pages behind it become inaccessible.
  /// False when the wall is too short.
  [[nodiscard]] bool resize(const HugeMap::Entry& entry, size_t bytes, size_t canary);

  /// Keeps who allocated a sampled block, as far as frame pointers lead.
  void note_callers(const void* block, os::Caller caller);
  /// Who allocated a live block; its block is 0 if that is not known, or the lock is held.
  [[nodiscard]] Site site_of(uintptr_t block);

  /// Frees a live block and holds its addresses; false when there is none.
  [[nodiscard]] bool free(const void* block, const void* caller, uint32_t thread);

  /// Gives half of the held addresses back, because the system refuses more; false if none is held.
  bool release_some();

  /// The freed block whose mapping covers the address; begin is 0 if there is none, or the lock is
  /// held. For reports. O(kMostHeld).
  [[nodiscard]] Freed freed_at(uintptr_t address);

  void lock() LOAM_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  void unlock() LOAM_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
  void reset_after_fork() { mutex_.reset_after_fork(); }

 private:
  [[nodiscard]] bool hold(const Freed& freed);
  bool release_oldest();
  [[nodiscard]] Site* place_of(uintptr_t block, uintptr_t holds);

  /// Places of the table. Twice the live blocks, so that a place near its own is free.
  static constexpr size_t kSites = 2 * kMostSampled;
  /// Places at which a block may be, from its own on. If none is free, its callers are not kept.
  static constexpr size_t kNear = 16;

  Mutex mutex_;
  Freed* ring_ = nullptr;
  Site* sites_ = nullptr;  // null: callers are not kept
  size_t first_ = 0;       // the oldest
  size_t count_ = 0;
  size_t held_bytes_ = 0;
  size_t most_live_ = 0;
  std::atomic<size_t> live_{0};
};

extern WalledBlocks walled_blocks;

}  // namespace loam
