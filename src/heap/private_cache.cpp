// Threads' caches of private heaps: made, filled, emptied, stopped. See private_cache.h for the rules.
#include <cstring>
#include <new>

#include "base/cpu.h"
#include "heap/heap_registry.h"
#include "map/metadata.h"
#include "os/os.h"

namespace loam {

namespace {

// Calls that a thread makes on one heap, none on heaps that share its place in between, before it gets a
// cache. Chosen: a cache costs some 3 KiB and 1 us; a heap of a few dozen blocks, of which there may be
// thousands, should cost neither. More makes busy heaps slow for longer.
constexpr uint32_t kCacheAfter = 64;
// As in ThreadCache: what is used once costs little, what is busy doubles, what is held is bounded in bytes.
constexpr unsigned kFirstSlots = 8;
constexpr unsigned kMostSlots = 256;
constexpr size_t kMagazineBytes = size_t{32} << 10;
constexpr size_t kCacheBytes = size_t{256} << 10;
// Of a heap with a maximum a cache holds no more than this share: many threads would starve each other.
constexpr size_t kShareOfMaximum = 64;
// How often who stops a heap looks before it lets others run.
constexpr unsigned kLooks = 64;

unsigned most_slots(unsigned size_class) {
  const size_t by_bytes = kMagazineBytes / kSizeClasses[size_class].bytes;
  return by_bytes < 2 ? 2 : by_bytes > kMostSlots ? kMostSlots : static_cast<unsigned>(by_bytes);
}

}  // namespace

HeapCache* PrivateHeap::cache_for_thread() {
  if (mode() != LOAM_MODE_LOW_FRAGMENTATION) return nullptr;
  ThreadHeaps* thread = heap_registry.thread();
  if (LOAM_UNLIKELY(thread == nullptr)) return nullptr;
  ThreadHeaps::Place& place = thread->place_of(this);
  const uint64_t generation = generation_.load(std::memory_order_relaxed);
  if (LOAM_LIKELY(place.heap == this && place.generation == generation)) return place.cache;
  if (place.challenger != this) {
    place.challenger = this;
    place.score = 0;
  }
  if (++place.score < kCacheAfter && (flags_ & LOAM_HEAP_EAGER) == 0) return nullptr;
  heap_registry.vacate(place);
  HeapCache* cache = make_cache(thread);
  if (cache == nullptr) return nullptr;
  place = ThreadHeaps::Place{this, generation, cache, nullptr, 0};
  return cache;
}

HeapCache* PrivateHeap::make_cache(ThreadHeaps* owner) {
  if (unsynchronized() && own_cache_ != nullptr) return own_cache_;
  void* piece = metadata.allocate(sizeof(HeapCache));
  if (piece == nullptr) return nullptr;
  HeapCache* cache = new (piece) HeapCache();
  cache->owner = unsynchronized() ? nullptr : owner;
  cache->exact = exact();
  cache->zero_on_free = zero_on_free();
  mutex_.lock();
  caches_.push_back(cache);
  mutex_.unlock();
  if (unsynchronized()) own_cache_ = cache;
  return cache;
}

bool PrivateHeap::grow(HeapCache* cache, unsigned size_class) {
  HeapMagazine& m = cache->magazines[size_class];
  const unsigned old_capacity = m.capacity();
  const size_t slot_bytes = kSizeClasses[size_class].bytes;
  unsigned capacity = old_capacity == 0 ? kFirstSlots : 2 * old_capacity;
  if (capacity > most_slots(size_class)) capacity = most_slots(size_class);
  if (capacity <= old_capacity) return false;
  size_t limit = kCacheBytes;
  if (maximum_ != 0 && maximum_ / kShareOfMaximum < limit) limit = maximum_ / kShareOfMaximum;
  const size_t more = (capacity - old_capacity) * slot_bytes;
  // The first slots are free of charge, unless the heap is small.
  if ((old_capacity != 0 || maximum_ != 0) && cache->granted_bytes + more > limit) return false;
  CacheSlot* slots = static_cast<CacheSlot*>(metadata.allocate(capacity * sizeof(CacheSlot)));
  if (slots == nullptr) return false;
  const unsigned held = m.held();
  if (held != 0) memcpy(slots, m.base, held * sizeof(CacheSlot));
  CacheSlot* old = m.base;
  m.base = slots;
  m.head = slots + held;
  m.end = slots + capacity;
  if (old != nullptr) metadata.free(old, old_capacity * sizeof(CacheSlot));
  cache->granted_bytes += more;
  return true;
}

bool PrivateHeap::refill(HeapCache* cache, unsigned size_class, loam_status* why) {
  HeapMagazine& m = cache->magazines[size_class];
  const bool first = m.base == nullptr;
  grow(cache, size_class);
  if (m.base == nullptr) return false;
  ++cache->refills;
  const unsigned wanted = first ? m.capacity() / 4 : m.capacity() / 2;
  m.head = m.base + take(size_class, m.base, wanted == 0 ? 1 : wanted, why);
  return m.head != m.base;
}

// The coldest slots go home: those at the bottom.
void PrivateHeap::flush(HeapMagazine& m, unsigned count) {
  for (unsigned i = 0; i < count; ++i) give(m.base[i]);
  const unsigned left = m.held() - count;
  if (left != 0) memmove(m.base, m.base + count, left * sizeof(CacheSlot));
  m.head = m.base + left;
}

void PrivateHeap::flush_all(HeapCache* cache) {
  for (unsigned c = 1; c < kSizeClassCount; ++c) flush(cache->magazines[c], cache->magazines[c].held());
}

void PrivateHeap::free_cache(HeapCache* cache) {
  ended_refills_ += cache->refills;
  ended_flushes_ += cache->flushes;
  for (HeapMagazine& m : cache->magazines) {
    if (m.base != nullptr) metadata.free(m.base, m.capacity() * sizeof(CacheSlot));
  }
  cache->~HeapCache();
  metadata.free(cache, sizeof(HeapCache));
}

void PrivateHeap::retire_cache(HeapCache* cache) {
  Lock lock(mutex_);
  // The stopped heap of another thread's lock is as good: nobody else looks at this cache.
  flush_all(cache);
  caches_.remove(cache);
  free_cache(cache);
}

void PrivateHeap::stop_caches() {
  visible_generation_.store(0, std::memory_order_seq_cst);
  if (unsynchronized() || caches_.empty()) return;
  // Never refused: without it there are no caches.
  const bool stopped = os::barrier_all_threads();
  LOAM_CHECK(stopped, "private heap: the system took its barrier back");
  for (HeapCache* cache = caches_.front(); cache != nullptr; cache = List<HeapCache>::next(cache)) {
    // acquire: pairs with the release in ThreadHeaps::leave()
    for (unsigned looks = 0; cache->owner->busy.load(std::memory_order_acquire) != 0; ++looks) {
      if (looks < kLooks) {
        cpu_pause();
      } else {
        os::yield();
      }
    }
  }
}

void PrivateHeap::resume_caches() {
  if (lock_owner_ != 0) return;
  // release: what was done to the caches comes first
  visible_generation_.store(generation_.load(std::memory_order_relaxed), std::memory_order_release);
}

void PrivateHeap::reclaim() {
  stop_caches();
  for (HeapCache* cache = caches_.front(); cache != nullptr; cache = List<HeapCache>::next(cache)) {
    flush_all(cache);
  }
  release_all_held_back();
  release_empty_spans();
  resume_caches();
}

}  // namespace loam
