// The private heaps that exist, and the threads that have caches of them.
//
//   records: 512 bytes each in slabs of 256 KiB that are never given back; a free record waits in a
//   queue, so that a handle is used again as late as possible
//
// Lock: mutex_, above every heap's lock. Public functions take it themselves.
#pragma once

#include "base/go_on.h"
#include "private/private_heap.h"

namespace loam {

class HeapRegistry {
 public:
  constexpr HeapRegistry() = default;

  /// A new heap, or null with *why.
  [[nodiscard]] PrivateHeap* create(const loam_heap_options& options, loam_status* why);
  [[nodiscard]] loam_status destroy(PrivateHeap* heap);

  /// True if the pointer is the record of a living heap. The pointer may have any value.
  [[nodiscard]] bool is_heap(const void* handle) const;

  /// Calls visit(heap) for each heap, oldest first, under the lock. `visit` must not call the
  /// registry.
  template <class Visit>
  void for_each(Visit visit) {
    const Inside inside(*this);
    for (PrivateHeap* heap : heaps_) visit(heap);
  }
  /// As for_each(), for the heap at `index` only. False when there are fewer heaps.
  template <class Visit>
  [[nodiscard]] bool at(unsigned index, Visit visit) {
    Lock lock(mutex_);
    PrivateHeap* heap = heaps_.front();
    while (heap != nullptr && index-- != 0) heap = List<PrivateHeap>::next(heap);
    if (heap != nullptr) visit(heap);
    return heap != nullptr;
  }
  [[nodiscard]] Mutex& mutex() { return mutex_; }
  /// Whether the calling thread holds the lock for a look into heaps.
  [[nodiscard]] bool is_inside() const {
    // relaxed: only the calling thread can have stored its own number
    return inside_.load(std::memory_order_relaxed) == this_thread();
  }
  [[nodiscard]] size_t count() const { return count_.load(std::memory_order_relaxed); }

  /// The calling thread's table of caches; null when it can have none.
  [[nodiscard]] ThreadHeaps* thread();
  /// Makes a cache of the heap for the calling thread, in the place of the thread's earlier cache
  /// there; null when the system refuses memory.
  [[nodiscard]] HeapCache* settle(ThreadHeaps* thread, PrivateHeap* heap);

  /// Gives back what heaps keep free inside of spans, in steps of some milliseconds at most, while
  /// it may go on. pre: the calling thread does not hold the lock
  void give_back_held(const GoOn& go_on);

  /// Around fork(): the registry's lock, then every heap's.
  void lock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void unlock_all() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void reset_locks_after_fork();
  /// For the child, after every lock is reset: the slots in caches of dead threads return to their
  /// spans.
  void adopt_after_fork();

 private:
  friend struct CounterFields;
  /// Holds the lock, for a look into heaps.
  class LOAM_CAPABILITY("scoped registry") Inside {
   public:
    explicit Inside(HeapRegistry& registry) LOAM_NO_THREAD_SAFETY_ANALYSIS : registry_(registry) {
      registry_.mutex_.lock();
      registry_.inside_.store(this_thread(), std::memory_order_relaxed);
    }
    ~Inside() LOAM_NO_THREAD_SAFETY_ANALYSIS {
      registry_.inside_.store(0, std::memory_order_relaxed);
      registry_.mutex_.unlock();
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    HeapRegistry& registry_;
  };
  static constexpr unsigned kSlabShift = 18;
  static constexpr size_t kSlab = size_t{1} << kSlabShift;
  static constexpr size_t kRecord = 512;
  static constexpr unsigned kSlabPlaces =
      4096;  // half used at most: a million heaps alive at a time

  static void end_thread();
  [[nodiscard]] PrivateHeap* take_record();
  [[nodiscard]] bool add_slab();
  /// Clears the thread's place: its cache's slots return to their spans if the heap still lives.
  void vacate(ThreadHeaps* thread, size_t index);
  void drop_thread(ThreadHeaps* thread);
  [[nodiscard]] static unsigned slab_home(uintptr_t slab) {
    return static_cast<unsigned>((slab >> kSlabShift) * 0x9e3779b97f4a7c15u >> 52);
  }
  static_assert(kSlabPlaces == 1u << 12, "slab_home() gives 12 bits");

  Mutex mutex_;
  List<PrivateHeap> heaps_;
  List<PrivateHeap> free_records_;
  List<ThreadHeaps> threads_;
  std::atomic<size_t> count_{0};
  std::atomic<uintptr_t> inside_{0};  // the thread that holds the lock by Inside
  uint64_t generations_ = 0;
  // Bound: free records rest until there are more than this, so that a handle that outlived its
  // heap is refused. A handle of a heap that ended before these may be that of another heap. A
  // record takes half a KiB.
  static constexpr size_t kResting = 64;
  size_t free_count_ = 0;
  char* slab_ = nullptr;  // the newest slab
  size_t slab_used_ = 0;
  unsigned slab_count_ = 0;
  std::atomic<uintptr_t> slabs_[kSlabPlaces] = {};  // open addressing
};

extern HeapRegistry heap_registry;

}  // namespace loam
