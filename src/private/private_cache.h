// A thread's caches of the private heaps that it uses often: per heap a cache, per class a magazine
// of slots. loam_alloc() pops, loam_free() pushes; neither takes a lock.
//
//   current_cache->heaps --> ThreadHeaps: 64 doors --> HeapCache of one heap
//                        --> magazine of one class: slots
//
// The heap's address chooses a door and its place; the place names the heap and its generation.
// Heaps compete for a place: a heap that comes kCacheAfter times in a row takes it. An open door
// names its heap, and the fast paths look only at the door: they do not follow the heap's pointer
// before it equals the pointer in the door. A closed door names a pointer that no caller at this
// door can have.
//
// loam_lock(), compact and a fixed heap at its limit stop all caches of the heap. This costs the
// fast path two plain stores: a thread sets `busy` while it is inside, and looks at the door after
// that. The stopping thread takes the heap's lock, closes the doors to all caches of the heap,
// makes all threads pass a barrier (os::barrier_all_threads), and waits until no owner of one of
// the caches is busy. Where the system has no such barrier there are no caches; where it refuses
// the barrier later (a sandbox), that wait begins some milliseconds later, and the doors stay
// closed. Busy threads never wait, so the wait is short. Destroying a heap closes the doors for
// ever. Places stay, and their generation shows that they are stale, because no other heap ever has
// it.
//
// Order of stores: a slot is stored before the head that covers it, and it leaves the magazine
// before its state changes. So a fork()ed child finds every magazine whole. It may lose the one
// slot that a thread was moving.
//
// Lock: a cache's lists and arrays change under its heap's lock, by its own thread or by the thread
// that stopped it. A door opens and closes under the lock of the heap whose cache is behind it.
// Only its thread changes what a place names, under the registry's lock.
#pragma once

#include "base/cpu.h"
#include "base/shared_room.h"
#include "cache/thread_cache.h"
#include "os/mutex.h"
#include "private/heap_run.h"

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

/// In a heap with a maximum, the part that may be out of reach of its blocks: for the cache of each
/// thread, because many threads would starve each other, and of its spans and mixed runs for the
/// records of spans that are cut anew. Measured (decision 68): a record takes 256 bytes to 1 KiB,
/// and most spans have 32 KiB. More memory for records (a smaller number) is wasted until the heap
/// is full. Less makes a full heap serve small blocks from whole slots of larger ones sooner.
inline constexpr size_t kShareOfMaximum = 64;

struct HeapCache : ListLink<HeapCache> {
  /// Null: the heap's own cache, of an unsynchronised heap. In another heap, a cache without an
  /// owner: its thread ended while the heap was locked, and the cache is emptied with the unlock.
  ThreadHeaps* owner = nullptr;
  size_t granted_bytes =
      0;  ///< of blocks, beyond the first slots; in a heap with a maximum those too
  uint32_t short_refills = 0;  ///< refills left for which magazines only shrink, as blocks leave
  bool exact = false;
  bool zero_on_free = false;
  uint64_t refills = 0;
  uint64_t flushes = 0;
  HeapMagazine magazines[kSizeClassCount];
  magazine_policy::Way last_ways[kSizeClassCount] = {};

  /// What all caches of private heaps hold beyond their dues. This room is separate from
  /// malloc()'s, and smaller: the cache of an idle heap keeps its blocks, and must not keep
  /// malloc()'s caches from growing.
  static constexpr size_t kRoomBytes = kProcessBytes / 4;
  static SharedRoom<kRoomBytes, kProcessShare> process_room;

  /// The place of a class's magazine in a cache, in bytes. A span of the class stores it.
  [[nodiscard]] static LOAM_INLINE size_t offset_of(size_t size_class);
  [[nodiscard]] LOAM_INLINE HeapMagazine* magazine_at(size_t offset) {
    return reinterpret_cast<HeapMagazine*>(reinterpret_cast<char*>(this) + offset);
  }
};
static_assert(sizeof(HeapCache) <= kPageBytes, "as docs/heaps.md says");

size_t HeapCache::offset_of(size_t size_class) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  return __builtin_offsetof(HeapCache, magazines) + size_class * sizeof(HeapMagazine);
#pragma GCC diagnostic pop
}

struct ThreadHeaps : ListLink<ThreadHeaps> {
  static constexpr unsigned kHeapShift = 9;  // records of heaps are 512 bytes apart
  /// Stands for a heap of exact sizes, or one that clears freed blocks, at its open door. Such
  /// heaps skip the first fast paths and have their own. The value belongs to the neighbouring
  /// door, so no caller comes to this door with it.
  [[nodiscard]] static LOAM_INLINE const PrivateHeap* special(const PrivateHeap* heap) {
    return reinterpret_cast<const PrivateHeap*>(reinterpret_cast<uintptr_t>(heap) ^
                                                uintptr_t{1} << kHeapShift);
  }
  /// The value of a closed door: null, or record 2 at the doors of null and of special(null).
  /// Record 2 belongs neither to this door nor to its neighbour, so no caller's pointer equals it,
  /// nor does its special().
  [[nodiscard]] static const PrivateHeap* nobody(size_t index) {
    return reinterpret_cast<const PrivateHeap*>(uintptr_t{index < 2 ? 2u : 0u} << kHeapShift);
  }
  struct Door {
    std::atomic<const PrivateHeap*> heap{nobody(2)};
    HeapCache* cache = nullptr;
    /// acquire: pairs with the release in open()
    [[nodiscard]] LOAM_INLINE bool leads_to(const PrivateHeap* to) const {
      return equals_acquire(heap, to);
    }
  };
  struct Place {
    const PrivateHeap* heap = nullptr;
    uint64_t generation = 0;
    const PrivateHeap* challenger = nullptr;
    uint32_t score = 0;
  };
  static constexpr unsigned kPlaces = 64;
  static constexpr unsigned kDoorShift = 4;
  static_assert(sizeof(Door) == 1u << kDoorShift);

  std::atomic<uint32_t> busy{0};
#if defined(LOAM_DEBUG)
  std::atomic<const PrivateHeap*> inside{nullptr};  ///< the heap that the owner entered last
#endif
  Door doors[kPlaces] = {{nobody(0)}, {nobody(1)}};
  Place places[kPlaces];

  [[nodiscard]] static LOAM_INLINE size_t index_of(const PrivateHeap* heap) {
    return (reinterpret_cast<uintptr_t>(heap) >> kHeapShift) % kPlaces;
  }
  [[nodiscard]] LOAM_INLINE Door& door_of(const PrivateHeap* heap) {
    // doors[index_of(heap)], by one shift and one mask
    const uintptr_t offset = reinterpret_cast<uintptr_t>(heap) >> (kHeapShift - kDoorShift);
    return *reinterpret_cast<Door*>(reinterpret_cast<char*>(doors) +
                                    (offset & (kPlaces - 1) << kDoorShift));
  }
  /// pre: the heap's cache is behind its door, or its thread is about to remove it
  void open(const PrivateHeap* heap, const HeapCache* cache) {
    const bool plain = !cache->exact && !cache->zero_on_free;
    // release: the changes of the cache come first; pairs with the acquire in Door::leads_to()
    door_of(heap).heap.store(plain ? heap : special(heap), std::memory_order_release);
  }
  void close(const PrivateHeap* heap) {
    // relaxed: a thread that must know that no thread is inside makes all threads pass a barrier
    door_of(heap).heap.store(nobody(index_of(heap)), std::memory_order_relaxed);
  }

  /// Before enter(). In debug builds it distinguishes a thread that is busy with this heap from one
  /// that is busy with another.
  LOAM_INLINE void note_inside([[maybe_unused]] const PrivateHeap* heap) {
#if defined(LOAM_DEBUG)
    inside.store(heap, std::memory_order_relaxed);
#endif
  }
  /// Between these two, a thread that stops the heap waits. The owner calls them.
  LOAM_INLINE void enter() {
    // relaxed, and only a compiler fence: a thread that stops heaps makes this one pass a barrier
    busy.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  LOAM_INLINE void leave() {
    // release: pairs with the acquire of the thread that waits for this one
    busy.store(0, std::memory_order_release);
  }
  /// Waits until the owner is outside, and calls `pause(looks)` each time that it is not.
  /// pre: closed, and all threads passed a barrier since
  template <class Pause>
  void wait_until_left(Pause pause) const {
    // acquire: pairs with the release in leave()
    for (unsigned looks = 0; busy.load(std::memory_order_acquire) != 0; ++looks) pause(looks);
  }
};

/// The calling thread's caches, or null while it has none.
[[nodiscard]] LOAM_INLINE ThreadHeaps* thread_heaps() {
  return static_cast<ThreadHeaps*>(current_cache->heaps);
}

/// A number of the calling thread, not 0, that no other living thread has.
[[nodiscard]] inline uintptr_t this_thread() { return os::thread_identity(current_cache); }

}  // namespace loam
