// Freed blocks that are held back from use, oldest out first, so that a use after free meets nobody's block and shows.
//
//   held_bytes_ <= limit_;   count_ <= capacity_;   entries are the newest count_ of a ring
//
// A block in here is full of kPoison. Who takes it out looks whether that is still so. The pattern is no address on any
// system that Loam runs on: a pointer read out of a freed block faults where it is followed.
//
// Thread-safe by its own lock, under which nothing else happens.
#pragma once

#include "os/mutex.h"

namespace loam {

class Quarantine {
 public:
  constexpr Quarantine() = default;

  static constexpr unsigned char kPoison = 0xf5;
  /// Blocks that one push() may drive out. More stay for the next: the limit is met all the same, see push().
  static constexpr unsigned kMostOut = 16;

  struct Entry {
    void* block;
    size_t bytes;
  };

  /// Once, before threads start; false when memory is refused.
  [[nodiscard]] bool start(size_t limit_bytes);
  [[nodiscard]] bool on() const { return ring_ != nullptr; }

  /// Whether blocks of this size are held back: one may not drive out more than a quarter of the others.
  [[nodiscard]] bool takes(size_t bytes) const { return bytes <= limit_ / 4; }

  /// Makes room: the oldest blocks that must go before `bytes` more fit, at most kMostOut; 0 when there is room. The
  /// caller checks and frees them, and asks again.
  [[nodiscard]] unsigned make_room(size_t bytes, Entry out[kMostOut]);
  /// False when other threads took the room meanwhile: then make_room() again.
  [[nodiscard]] bool push(const Entry& entry);

  /// Calls visit(entry) for every block, under the lock; stops when that is false, and returns false then.
  template <class Visit>
  bool for_each(Visit visit) {
    Lock lock(mutex_);
    for (size_t i = 0; i < count_; ++i) {
      if (!visit(ring_[(first_ + i) % capacity_])) return false;
    }
    return true;
  }

  [[nodiscard]] size_t held_bytes() {
    Lock lock(mutex_);
    return held_bytes_;
  }
  [[nodiscard]] Mutex& mutex() { return mutex_; }

 private:
  Mutex mutex_;
  Entry* ring_ = nullptr;
  size_t capacity_ = 0;
  size_t first_ = 0;  // the oldest
  size_t count_ = 0;
  size_t limit_ = 0;
  size_t held_bytes_ = 0;
};

/// Overwrites with poison.
void poison(void* block, size_t bytes);
/// The offset of the first byte that is no poison; `bytes` when all are.
[[nodiscard]] size_t first_unpoisoned(const void* block, size_t bytes);
/// "use after free: byte 8 of a freed block was overwritten", as report_misuse() says things.
void report_poison(const void* block, size_t offset);

}  // namespace loam
