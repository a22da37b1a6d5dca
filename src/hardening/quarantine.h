// Freed blocks that are held back from reuse, oldest out first, so that a use after free does not
// reach another live block, and shows.
//
//   held bytes of a stripe <= limit_ / stripes in use;   count <= kPlaces of it
//   entries are the newest `count` of a ring
//
// Each thread uses a stripe with a lock of its own, so that frees of two threads rarely meet. A
// stripe starts with its first block; then each of the other stripes may hold less.
//
// A block in the quarantine is full of kPoison. The thread that takes it out checks that it still
// is. The pattern is no address on any system that Loam runs on: a pointer that is read out of a
// freed block faults when it is followed.
//
// Thread-safe by the stripes' locks; under them nothing else is done except the mapping of a ring.
#pragma once

#include <atomic>

#include "map/records.h"
#include "os/mutex.h"

namespace loam {

class Quarantine {
 public:
  constexpr Quarantine() = default;

  static constexpr unsigned char kPoison = 0xf5;
  /// Most blocks that one exchange() drives out. The rest stays for the next.
  static constexpr unsigned kMostOut = 16;
  /// More than most machines have processors; each stripe costs a page and its share of the limit
  /// (decision 72).
  static constexpr unsigned kStripes = kPageShards;

  struct Entry {
    void* block;
    size_t bytes;
  };

  /// Call once, before threads start; false when the system refuses memory.
  [[nodiscard]] bool start(size_t limit_bytes);
  [[nodiscard]] LOAM_INLINE bool on() const { return limit_ != 0; }

  /// True if blocks of this size are held back: one block may drive out at most a quarter of the
  /// others.
  [[nodiscard]] bool takes(size_t bytes) const { return bytes <= limit_ / 4; }

  /// Puts the entry into the thread's stripe if there is room (*pushed). Otherwise it makes room:
  /// it takes out the oldest blocks, at most kMostOut, which the caller checks and frees before it
  /// calls again. Returns how many. `thread` is any number of the thread's.
  [[nodiscard]] unsigned exchange(unsigned thread, const Entry& entry, Entry out[kMostOut],
                                  bool* pushed);

  /// Calls visit(entry) for every block, under its stripe's lock; stops when that is false, and
  /// returns false then.
  template <class Visit>
  bool for_each(Visit visit) {
    for (Stripe& stripe : stripes_) {
      Lock lock(stripe.mutex);
      for (size_t i = 0; i < stripe.count; ++i) {
        if (!visit(stripe.ring[(stripe.first + i) & mask_])) return false;
      }
    }
    return true;
  }

  void lock() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void unlock() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void reset_after_fork();

 private:
  struct alignas(64) Stripe {
    Mutex mutex;
    Entry* ring = nullptr;
    size_t first = 0;  // the oldest
    size_t count = 0;
    size_t held_bytes = 0;
  };
  [[nodiscard]] bool open(Stripe& stripe);

  size_t mask_ = 0;  // of entries in a ring: a power of two, less one
  size_t limit_ = 0;
  std::atomic<size_t> share_{0};  // of each stripe in use
  std::atomic<unsigned> in_use_{0};
  Stripe stripes_[kStripes];
};

/// Overwrites the block with poison.
void poison(void* block, size_t bytes);
/// The offset of the first byte that is not poison; `bytes` when there is none.
[[nodiscard]] size_t first_unpoisoned(const void* block, size_t bytes);
/// "use after free: byte 8 of a freed block was overwritten", through report_misuse(); `held` as
/// there.
void report_poison(const void* block, size_t offset, Mutex* held = nullptr);

}  // namespace loam
