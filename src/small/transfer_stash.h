// Freed blocks of one class on their way from one thread to another: what a full magazine could not
// hold waits here, a batch at a time, for a refill, and no span is touched on either side.
//
//   full_  -> batch -> batch -> ...    at most kMostBatches and kMostBytes of blocks, but for givers who look at the
//                                      same time; the last put on top
//   spare_ -> batch -> ...             emptied records, for the next put
//
// Only for what one thread frees and another takes: a giver who was also the class's last taker is
// sent home, so that a program of one thread holds nothing here (decision 15). Blocks count as
// queued, and their slots in the spans stay marked as handed out.
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

  /// Pointers that a batch of any class holds at most: 2 KiB with the header.
  static constexpr unsigned kMostPointers = 254;
  static_assert(sizeof(Batch) + kMostPointers * sizeof(void*) == 2048, "one piece of metadata");
  /// Chosen: a ring of 4,096 blocks fits, which a consumer may empty before its producer runs
  /// again.
  static constexpr uint32_t kMostBatches = 16;
  /// Chosen: of a class. Four batches of the classes from 256 B on.
  static constexpr size_t kMostBytes = size_t{256} << 10;
  /// What one batch of a class holds, but kFewPointers always.
  static constexpr unsigned kFewPointers = 4;
  [[nodiscard]] static unsigned batch_slots(unsigned size_class) {
    const size_t by_bytes = kMostBytes / 4 / class_info(size_class).bytes + 1;
    return by_bytes < kFewPointers    ? kFewPointers
           : by_bytes < kMostPointers ? static_cast<unsigned>(by_bytes)
                                      : kMostPointers;
  }

  /// True where blocks of this giver are more likely to be taken by somebody else.
  [[nodiscard]] bool wants(const void* giver) const {
    // relaxed: a guess. 1: nobody took yet
    const void* taker = taker_.load(std::memory_order_relaxed);
    return taker != giver && taker != nullptr;
  }
  /// Notes who takes blocks of the class now, from here or from a span.
  void note_taker(const void* taker) {
    if (taker_.load(std::memory_order_relaxed) != taker)
      taker_.store(taker, std::memory_order_relaxed);
  }

  /// Keeps the pointers; false, and nothing was done, when full or memory for a record is refused.
  /// pre: 1 <= count <= batch_slots(size_class)
  [[nodiscard]] bool put(unsigned size_class, void* const* pointers, unsigned count);

  /// A batch, where `out` has room for all of it, or `wanted` pointers of one, the longest freed
  /// last; 0 when there are none. pre: 1 <= wanted <= room
  [[nodiscard]] unsigned take(void** out, unsigned wanted, unsigned room);
  [[nodiscard]] unsigned take(void** out, unsigned wanted) { return take(out, wanted, wanted); }

  /// Takes the batches out that no take() since the last call would have missed; `all`: every one.
  [[nodiscard]] Batch* take_idle(bool all);
  /// Gives records back to the metadata arena, and those that are spare here too.
  void release(unsigned size_class, Batch* emptied);

  /// Blocks that wait here; recent.
  [[nodiscard]] uint32_t blocks() const { return blocks_.load(std::memory_order_relaxed); }
  [[nodiscard]] Mutex& mutex() { return mutex_; }

  [[nodiscard]] bool is_valid(unsigned size_class);

 private:
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
