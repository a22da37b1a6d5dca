// How much a thread's magazines may hold, and when they give it back. Pure arithmetic over numbers:
// the cache that owns a budget moves blocks and arrays, and says here what it did.
//
//   granted = slots beyond the first ones, in bytes of blocks
//   due     = first slots of blocks of kDueBytes or more: every thread's, whatever others hold
//   shared  = granted + (due beyond kDue)            what comes out of the room of all threads
//
//   granted + due <= most():     a thread's part of the room of all threads, at least 2 MiB
//                                (decisions 13, 16 and 55)
//   granted + due > unearned():  magazines grow only while misses are frequent (decision 51)
//   shared of all threads:       SharedRoom<kProcessBytes, kProcessShare>
//
// A collection comes after a number of slow operations, or of frees. It finds the classes that had
// no call, and takes their blocks and room from them.
//
// Not thread-safe: its cache's thread alone uses it.
#pragma once

#include "base/shared_room.h"
#include "cache/magazine_lengths.h"
#include "cache/miss_rate.h"

namespace loam {

class CacheBudget {
 public:
  /// The room of all threads' magazines.
  using Room = SharedRoom<kProcessBytes, kProcessShare>;
  /// The size to which the magazines of one thread may grow, in bytes of blocks; first slots of
  /// small blocks do not count. Chosen: the two first slots of every class make 1.5 MiB, so a
  /// thread that uses all of them does not take a lock for each block.
  static constexpr size_t kThreadBytes = size_t{2} << 20;
  /// The size to which they may always grow, or the heap's size divided by kProcessShare. Beyond it
  /// they grow only while misses are frequent. Measured: with 512 KiB, programs that only allocate
  /// and free are a tenth slower (decision 51).
  static constexpr size_t kUnearnedBytes = kThreadBytes / 2;
  /// Every thread's due of first slots of large blocks; slots beyond it come out of the shared
  /// room.
  static constexpr size_t kDue = kThreadBytes / 4;
  /// Blocks from this size on count from the first slot, because there are many such classes and
  /// each block is large.
  static constexpr size_t kDueBytes = kFineLimit;
  /// A magazine grows to the heap's size divided by this, or to magazine_policy::kOneWayBytes,
  /// while its thread only takes, or only gives (decision 55).
  static constexpr size_t kOneWayShare = 1024;
  /// A magazine of at most this many bytes may grow even while misses are rare. In a program that
  /// uses every class the first slots alone exceed kUnearnedBytes, and otherwise no magazine could
  /// grow (decision 51).
  static constexpr size_t kEverybodysBytes = size_t{8} << 10;
  /// An array is freed this many collections after its idle class returned its blocks. A program
  /// that goes through many sizes in turn comes back to each after a few (decision 13).
  static constexpr unsigned kIdleCollections = 8;
  static_assert(kIdleCollections <= Tuning::kMostIdle);
  /// Slow operations between two collections of idle classes.
  static constexpr uint32_t kCollectEvery = 256;
  /// Frees between two collections, if they come earlier: a thread that misses rarely would
  /// otherwise keep blocks that it needed once for long. While its magazines hold no more than
  /// kUnearnedBytes the collection comes later, because much of that, and of the kept runs, may
  /// stay unused (decision 51).
  static constexpr uint64_t kCollectFrees = 32768;
  static constexpr uint64_t kCollectUnearnedFrees = 2 * kCollectFrees;
  /// A class without a call in this many slow operations since the last collection gives its room
  /// to a class that misses and may not grow. A program that draws its sizes at random calls most
  /// of its classes in that time.
  static constexpr uint32_t kIdleAfter = kCollectEvery / 4;
  /// The classes that one search looks at: a miss costs some 800 instructions, a look six.
  static constexpr unsigned kLooksForIdle = 8;

  /// A magazine's next length, and where its room comes from.
  struct Growth {
    unsigned capacity;  ///< 0: it stays as it is
    bool first;         ///< its class had no magazine
    size_t due;
    size_t more;    ///< granted
    size_t shared;  ///< to be taken out of the room of all threads
    bool is_long;   ///< it then is longer than usual
    [[nodiscard]] size_t bytes() const { return due + more; }
  };
  /// For a magazine of `capacity` slots that was too short, in a heap of `heap_bytes`. `turned`: it
  /// was too short for the other operation before.
  [[nodiscard]] LOAM_INLINE Growth next(size_t block_bytes, unsigned capacity, bool turned,
                                        size_t heap_bytes) const {
    const size_t one_way = share_of(heap_bytes, kOneWayShare, magazine_policy::kOneWayBytes);
    const unsigned next = magazine_policy::next_capacity(block_bytes, capacity, turned, one_way);
    if (next <= capacity) return {};
    const bool first = capacity == 0;
    // The first slots are every thread's due, whatever the process holds; but a thread may have few
    // slots of large blocks.
    const size_t due = first ? due_bytes(block_bytes, next) : 0;
    const size_t more = first ? 0 : (next - capacity) * block_bytes;
    const bool earned = next * block_bytes <= kEverybodysBytes || !misses_.is_low();
    if (more != 0 && !earned && holds_unearned(more, heap_bytes)) return {};
    return {.capacity = next,
            .first = first,
            .due = due,
            .more = more,
            .shared = more + beyond_due(due_ + due) - beyond_due(due_),
            .is_long = magazine_policy::is_long(block_bytes, next)};
  }
  void take(const Growth& growth) {
    granted_ += growth.more;
    due_ += growth.due;
    has_long_ |= growth.is_long;
  }
  /// What a magazine of so many slots gives back of its granted room, and of its due; the result is
  /// to be given back to the room of all threads.
  [[nodiscard]] size_t give(size_t granted) {
    granted_ -= granted;
    return granted;
  }
  [[nodiscard]] size_t give_due(size_t due) {
    const size_t shared = beyond_due(due_);
    due_ -= due;
    return shared - beyond_due(due_);
  }
  [[nodiscard]] size_t give_all() {
    const size_t all = shared();
    granted_ = due_ = 0;
    return all;
  }
  /// What the thread holds of the room of all threads.
  [[nodiscard]] size_t shared() const { return granted_ + beyond_due(due_); }
  /// The due of a magazine with so many first slots: none for blocks too small to matter.
  [[nodiscard]] static size_t due_bytes(size_t block_bytes, unsigned slots) {
    return block_bytes < kDueBytes ? 0 : slots * block_bytes;
  }

  /// Whether this thread's limit has room for `bytes` more, whatever other threads hold.
  [[nodiscard]] bool has_room(size_t bytes, size_t heap_bytes, size_t threads) const {
    return granted_ + due_ + bytes <= most(heap_bytes, threads);
  }
  /// Whether magazines with `more` bytes would exceed the size that they may always have.
  [[nodiscard]] bool holds_unearned(size_t more, size_t heap_bytes) const {
    return granted_ + due_ + more > share_of(heap_bytes, kProcessShare, kUnearnedBytes);
  }
  /// The most that this thread's magazines may hold, whatever other threads hold: an equal part of
  /// the room of all threads, or kThreadBytes.
  [[nodiscard]] static size_t most(size_t heap_bytes, size_t threads) {
    return share_of(Room::limit(heap_bytes), threads, kThreadBytes);
  }

  /// The class whose magazine has most granted room, without `size_class`; 0 if none has any.
  [[nodiscard]] static unsigned largest_other(const Tuning* tuning, unsigned end,
                                              unsigned size_class);
  /// The class whose magazine has most bytes, of those that are longer than usual; 0 if none is.
  [[nodiscard]] unsigned longest(const Tuning* tuning, unsigned end);
  /// The next of a few classes that has granted room, and had no call since the last collection; 0
  /// if there is none. `end`: of the classes.
  [[nodiscard]] unsigned next_idle(const Tuning* tuning, unsigned end);

  /// A shrinking magazine's next capacity, and the blocks that leave it.
  struct Shrinking {
    unsigned capacity;
    unsigned gone;
  };
  [[nodiscard]] static Shrinking shrink(unsigned capacity, unsigned initial, unsigned held) {
    const unsigned next = capacity / 2u < initial ? initial : capacity / 2u;
    return {next, held / 2 > next ? held - next : held / 2};
  }

  /// True when a collection is due. `frees`: all frees of the thread so far.
  [[nodiscard]] LOAM_INLINE bool note_slow_operation(uint64_t frees) {
    misses_.note_slow_operation(frees);
    return ++slow_operations_ >= kCollectEvery;
  }
  /// The same for a thread that rarely misses, after kCollectFrees at the least.
  [[nodiscard]] bool collects_after(uint64_t frees, size_t heap_bytes) const {
    return frees >= kCollectUnearnedFrees ||
           (frees >= kCollectFrees && holds_unearned(0, heap_bytes));
  }
  [[nodiscard]] uint64_t since_collection(uint64_t frees) const { return frees - collected_at_; }
  void begin_collection(uint64_t frees) {
    slow_operations_ = 0;
    collected_at_ = frees;
  }

 private:
  [[nodiscard]] static size_t beyond_due(size_t due) { return due > kDue ? due - kDue : 0; }

  uint32_t slow_operations_ = 0;  ///< since the last collection
  MissRate misses_;
  uint64_t collected_at_ = 0;  ///< frees at the last collection
  size_t granted_ = 0;
  size_t due_ = 0;
  uint8_t next_idle_ = 0;  ///< the class at which the last search for an idle one ended
  bool has_long_ = false;  ///< a magazine may be longer than usual
};

}  // namespace loam
