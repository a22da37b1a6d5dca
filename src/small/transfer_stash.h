// Freed blocks of one class on their way from one thread to another. Blocks that a full magazine
// could not hold wait here in batches for a refill, and no span is touched on either side.
//
//   full_  -> batch -> batch -> ...    at most kMostBatches and kMostBytes of blocks, except when
//                                      givers look at the same time; the newest batch on top
//   spare_ -> batch -> ...             emptied batches, for the next put
//
// Only for blocks that one thread frees and another takes. Blocks of a giver that was also the
// class's last taker go to their spans, so a program of one thread holds nothing here (decision
// 15). Blocks in the stash count as queued, and their slots in the spans stay marked as handed out.
//
// Lock: own, a leaf; pointers are copied outside it, from and to a batch that is in neither list.
// Thread-safe.
#pragma once

#include <atomic>

#include "os/mutex.h"
#include "small/split_classes.h"

namespace loam {

class alignas(64) TransferStash {
 public:
  constexpr TransferStash() = default;

  /// Pointers follow the header.
  struct Batch {
    Batch* next;
    size_t count;
    [[nodiscard]] void** pointers() { return reinterpret_cast<void**>(this + 1); }
  };

  /// The most pointers in a batch of any class: 2 KiB with the header.
  static constexpr unsigned kMostPointers = 254;
  static_assert(sizeof(Batch) + kMostPointers * sizeof(void*) == 2048, "one piece of metadata");
  /// Chosen: it has room for a ring of 4,096 blocks, which a consumer may empty before its producer
  /// runs again.
  static constexpr uint32_t kMostBatches = 16;
  /// The limit of a class. Chosen: four batches of the classes from 256 B on.
  static constexpr size_t kMostBytes = size_t{256} << 10;
  /// The pointers that one batch of a class holds: at least kFewPointers.
  static constexpr unsigned kFewPointers = 4;
  [[nodiscard]] static unsigned batch_slots(unsigned size_class) {
    const size_t by_bytes = kMostBytes / 4 / class_info(size_class).bytes + 1;
    return by_bytes < kFewPointers    ? kFewPointers
           : by_bytes < kMostPointers ? static_cast<unsigned>(by_bytes)
                                      : kMostPointers;
  }

  /// True if another thread is more likely to take the blocks than this giver.
  [[nodiscard]] bool wants(const void* giver) const {
    // relaxed: a guess. null: no thread took yet
    const void* taker = taker_.load(std::memory_order_relaxed);
    return taker != giver && taker != nullptr;
  }
  /// Records the cache that takes blocks of the class now, from here or from a span.
  void note_taker(const void* taker) {
    if (taker_.load(std::memory_order_relaxed) != taker)
      taker_.store(taker, std::memory_order_relaxed);
  }

  /// Keeps the pointers. False, without any change, when the stash is full or the system refuses
  /// memory for a batch. pre: 1 <= count <= batch_slots(size_class)
  [[nodiscard]] bool put(unsigned size_class, void* const* pointers, unsigned count);

  /// Takes a batch whole if `out` has room for it, otherwise `wanted` pointers of the batch. Those
  /// freed longest ago are taken last. Returns 0 when there are none. pre: 1 <= wanted <= room
  [[nodiscard]] unsigned take(void** out, unsigned wanted, unsigned room);
  [[nodiscard]] unsigned take(void** out, unsigned wanted) { return take(out, wanted, wanted); }

  /// Takes out the batches that no take() has needed since the last call; `all`: every batch.
  [[nodiscard]] Batch* take_idle(bool all);
  /// Returns batches to the metadata arena, together with the spare ones of the stash.
  void release(unsigned size_class, Batch* emptied);

  /// Blocks that wait here. May be slightly old.
  [[nodiscard]] uint32_t blocks() const { return blocks_.load(std::memory_order_relaxed); }
  [[nodiscard]] Mutex& mutex() { return mutex_; }

  [[nodiscard]] bool is_valid(unsigned size_class);

 private:
  friend struct CounterFields;
  void push(Batch* batch);
  Batch* pop();

  Mutex mutex_;
  Batch* full_ = nullptr;
  Batch* spare_ = nullptr;
  std::atomic<const void*> taker_{nullptr};
  std::atomic<uint32_t> blocks_{0};  // changed under the lock
  uint16_t batches_ = 0;             // in full_
  uint16_t idle_ = 0;                // the fewest that were in full_ since the last take_idle()
};
static_assert(sizeof(TransferStash) == 64, "one cache line travels between giver and taker");

}  // namespace loam
