// What a thread keeps for the private heaps that it uses often: per heap a cache, per class a magazine of
// slots. loam_alloc() pops, loam_free() pushes; neither takes a lock.
//
//   current_cache->heaps --> ThreadHeaps: 64 places --> HeapCache of one heap --> magazine of one class: slots
//
// A place is chosen by the heap's address and names the heap and its generation. Generations are never
// used again: when a heap is destroyed its caches are dropped with it, and a place that still names it can
// never match, nor is its pointer followed. Places are contended by heaps; a heap that comes kCacheAfter
// times in a row takes the place.
//
// Stopping everybody (loam_lock, compact, a fixed heap at its limit) costs the fast path two plain stores:
// a thread says `busy` while it is inside, and looks at the heap's generation after that. Who wants the
// heap for himself takes its lock, sets the generation that caches see to 0, makes all threads pass a
// barrier (os::barrier_all_threads), and waits until no owner of one of its caches is busy. Where the
// system has no such barrier there are no caches. Busy threads never wait, so the wait is short.
//
// Order of stores: a slot is stored before the head that covers it, and leaves the magazine before its
// state changes, so that a fork()ed child finds every magazine whole; it may lose the one slot that a
// thread was moving.
//
// Lock: a cache's lists and arrays change under its heap's lock, by its own thread or by whoever stopped it.
#pragma once

#include "cache/thread_cache.h"
#include "heap/heap_run.h"
#include "os/mutex.h"

namespace loam {

struct CacheSlot {
  void* block;
  uint8_t* state;
};

struct HeapMagazine {
  CacheSlot* head = nullptr;
  CacheSlot* base = nullptr;
  CacheSlot* end = nullptr;

  [[nodiscard]] unsigned held() const { return static_cast<unsigned>(head - base); }
  [[nodiscard]] unsigned capacity() const { return static_cast<unsigned>(end - base); }
};

struct ThreadHeaps;

struct HeapCache : ListLink<HeapCache> {
  ThreadHeaps* owner = nullptr;  ///< null: the heap's own, of an unsynchronised heap
  size_t granted_bytes = 0;      ///< of blocks, beyond the initial capacities
  bool exact = false;
  bool zero_on_free = false;
  uint64_t refills = 0;
  uint64_t flushes = 0;
  HeapMagazine magazines[kSizeClassCount];
};

struct ThreadHeaps : ListLink<ThreadHeaps> {
  struct Place {
    const PrivateHeap* heap = nullptr;
    uint64_t generation = 0;
    HeapCache* cache = nullptr;
    const PrivateHeap* challenger = nullptr;
    uint32_t score = 0;
  };
  static constexpr unsigned kPlaces = 64;

  std::atomic<uint32_t> busy{0};
  Place places[kPlaces];

  [[nodiscard]] LOAM_INLINE Place& place_of(const PrivateHeap* heap) {
    // Records of heaps are 512 bytes apart.
    return places[(reinterpret_cast<uintptr_t>(heap) >> 9) % kPlaces];
  }

  /// Between these two, nobody who stops a heap goes on. The owner calls them.
  LOAM_INLINE void enter() {
    // relaxed, and no fence but the compiler's: who stops heaps makes us pass a barrier
    busy.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  LOAM_INLINE void leave() {
    // release: pairs with the acquire of who waits for us
    busy.store(0, std::memory_order_release);
  }
};

/// The calling thread's, or null while it has none.
[[nodiscard]] LOAM_INLINE ThreadHeaps* thread_heaps() { return current_cache->heaps; }

/// A number of the calling thread, not 0, that no other living thread has.
[[nodiscard]] inline uintptr_t this_thread() { return reinterpret_cast<uintptr_t>(&current_cache); }

}  // namespace loam
