// Threads' caches of private heaps: made, filled, emptied, stopped. private_cache.h has the rules.
#include <cstring>
#include <new>

#include "base/cpu.h"
#include "map/metadata.h"
#include "os/os.h"
#include "pages/page_heap.h"
#include "private/heap_registry.h"

namespace loam {

namespace {

// Calls of a thread on one heap, without a call on heaps that share its place in between, before it
// gets a cache. Chosen: a cache costs some 3 KiB and 1 us. A heap of a few dozen blocks, of which
// there may be thousands, should cost neither. More makes busy heaps slow for longer.
constexpr uint32_t kCacheAfter = 64;
// The growth of a cache beyond its first slots, in bytes of blocks, has the due and the limit of a
// thread's cache of the default heap.
size_t beyond_cache_due(size_t granted) {
  return granted > ThreadCache::kDue ? granted - ThreadCache::kDue : 0;
}
// Looks of a thread that stops a heap before it yields to other threads.
constexpr unsigned kLooks = 64;

// Bound: without a barrier, the time after which the stores of all threads have certainly arrived.
// A processor holds a store back for less than a microsecond, and an interrupt or another program's
// turn ends that too (decision 120).
constexpr uint64_t kStoresArriveNs = 10'000'000;

}  // namespace

constinit decltype(HeapCache::process_room) HeapCache::process_room;

void* PrivateHeap::pop_special(const PrivateHeap* heap, size_t bytes) {
  return pop_as<true>(heap, bytes);
}

bool PrivateHeap::push_special(const PrivateHeap* heap, const Span* span, void* block) {
  return push_as<true>(heap, span, block);
}

HeapCache* PrivateHeap::cache_for_thread() {
  if (mode() != LOAM_MODE_LOW_FRAGMENTATION) return nullptr;
  ThreadHeaps* thread = heap_registry.thread();
  if (LOAM_UNLIKELY(thread == nullptr)) return nullptr;
  const size_t index = ThreadHeaps::index_of(this);
  ThreadHeaps::Place& place = thread->places[index];
  const uint64_t generation = generation_.load(std::memory_order_relaxed);
  if (LOAM_LIKELY(place.heap == this && place.generation == generation))
    return thread->doors[index].cache;
  if (place.challenger != this) {
    place.challenger = this;
    place.score = 0;
  }
  if (++place.score < kCacheAfter && (flags_ & LOAM_HEAP_EAGER) == 0) return nullptr;
  return heap_registry.settle(thread, this);
}

// Together with the door to it, which opens unless the heap is stopped.
HeapCache* PrivateHeap::make_cache(ThreadHeaps* thread) {
  Lock lock(mutex_);
  if (caches_.closed) return nullptr;
  HeapCache* cache = caches_.own;
  if (cache == nullptr) {
    void* piece = metadata.allocate(sizeof(HeapCache));
    if (piece == nullptr) return nullptr;
    cache = new (piece) HeapCache();
    cache->owner = unsynchronized() ? nullptr : thread;
    cache->exact = exact();
    cache->zero_on_free = zero_on_free();
    caches_.list.push_back(cache);
    if (unsynchronized()) caches_.own = cache;
  }
  thread->door_of(this).cache = cache;
  if (!hold_.stops_caches) thread->open(this, cache);
  return cache;
}

void PrivateHeap::close_doors() {
  for (HeapCache* cache : caches_.list) {
    if (cache->owner != nullptr)
      cache->owner->close(this);  // else the heap's own, or without an owner: no door leads there
  }
}

// The counted bytes of a magazine of this many slots. The first slots are free of charge, unless
// the heap has a maximum.
size_t PrivateHeap::granted_for(unsigned size_class, unsigned capacity) const {
  const size_t slot_bytes = kSizeClasses[size_class].bytes;
  const unsigned first = account_.maximum != 0 ? 0 : magazine_policy::initial_capacity(slot_bytes);
  return capacity <= first ? 0 : (capacity - first) * slot_bytes;
}

bool PrivateHeap::grow(HeapCache* cache, unsigned size_class, Way way) {
  HeapMagazine& m = cache->magazines[size_class];
  const unsigned old_capacity = m.capacity();
  const bool turned = magazine_policy::has_turned(cache->last_ways[size_class], way);
  cache->last_ways[size_class] = way;
  const unsigned capacity =
      magazine_policy::next_capacity(kSizeClasses[size_class].bytes, old_capacity, turned);
  if (capacity <= old_capacity) return false;
  size_t limit = ThreadCache::kThreadBytes;
  if (account_.maximum != 0 && account_.maximum / kShareOfMaximum < limit)
    limit = account_.maximum / kShareOfMaximum;
  const size_t more = granted_for(size_class, capacity) - granted_for(size_class, old_capacity);
  if (more != 0 && cache->granted_bytes + more > limit) return false;
  const size_t shared =
      beyond_cache_due(cache->granted_bytes + more) - beyond_cache_due(cache->granted_bytes);
  if (shared != 0 && !HeapCache::process_room.take(shared, page_heap.hints().used_bytes()))
    return false;
  CacheSlot* slots = static_cast<CacheSlot*>(metadata.allocate(capacity * sizeof(CacheSlot)));
  if (slots == nullptr) {
    HeapCache::process_room.give(shared);
    return false;
  }
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

// Returns a magazine's slots, its array and its share.
void PrivateHeap::retire_magazine(HeapCache* cache, unsigned size_class) {
  HeapMagazine& m = cache->magazines[size_class];
  if (m.base == nullptr) return;
  flush(m, m.held());
  const size_t less = granted_for(size_class, m.capacity());
  HeapCache::process_room.give(beyond_cache_due(cache->granted_bytes) -
                               beyond_cache_due(cache->granted_bytes - less));
  cache->granted_bytes -= less;
  metadata.free(m.base, m.capacity() * sizeof(CacheSlot));
  m = HeapMagazine{};
}

bool PrivateHeap::refill(HeapCache* cache, unsigned size_class, loam_status* why) {
  HeapMagazine& m = cache->magazines[size_class];
  const bool first = m.base == nullptr;
  grow(cache, size_class, Way::kTake);
  if (m.base == nullptr) return false;
  ++cache->refills;
  if (LOAM_UNLIKELY(cache->short_refills != 0)) --cache->short_refills;
  const unsigned wanted =
      magazine_policy::refill_count(kSizeClasses[size_class].bytes, m.capacity(), first);
  m.head = m.base + take(size_class, m.base, wanted, why);
  return m.head != m.base;
}

// The coldest slots return to their spans: those at the bottom.
void PrivateHeap::flush(HeapMagazine& m, unsigned count) {
  give(m.base, count);
  const unsigned left = m.held() - count;
  if (left != 0) memmove(m.base, m.base + count, left * sizeof(CacheSlot));
  m.head = m.base + left;
}

void PrivateHeap::flush_all(HeapCache* cache) {
  for (unsigned c = 1; c < kSizeClassCount; ++c)
    flush(cache->magazines[c], cache->magazines[c].held());
}

void PrivateHeap::free_cache(HeapCache* cache) {
  HeapCache::process_room.give(beyond_cache_due(cache->granted_bytes));
  caches_.ended_refills += cache->refills;
  caches_.ended_flushes += cache->flushes;
  for (HeapMagazine& m : cache->magazines) {
    if (m.base != nullptr) metadata.free(m.base, m.capacity() * sizeof(CacheSlot));
  }
  cache->~HeapCache();
  metadata.free(cache, sizeof(HeapCache));
}

void PrivateHeap::end_cache(HeapCache* cache) {
  flush_all(cache);
  caches_.list.remove(cache);
  free_cache(cache);
}

void PrivateHeap::retire_cache(HeapCache* cache) {
  Lock lock(mutex_);
  cache->owner->close(this);
  // The thread that locked the heap may be in the middle of a walk, in a span that these slots
  // could empty. This thread does not wait: its caller has the registry's lock, which that thread
  // may need.
  if (LOAM_UNLIKELY(hold_.owner != 0)) {
    cache->owner = nullptr;
    return;
  }
  end_cache(cache);
}

void PrivateHeap::stop_caches() {
  if (unsynchronized() || hold_.stops_caches) return;
  hold_.stops_caches = true;
  if (caches_.list.empty() || caches_.closed) return;
  close_doors();
  if (LOAM_UNLIKELY(!os::barrier_all_threads())) {
    // The program is in a sandbox since the caches were made. These doors stay closed, so that this
    // wait is the only one.
    caches_.closed = true;
    cached_classes_.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (const uint64_t until = os::now_ns() + kStoresArriveNs; os::now_ns() < until;) os::yield();
  }
  for (HeapCache* cache : caches_.list) {
    cache->owner->wait_until_left(
        [](unsigned looks) { looks < kLooks ? cpu_pause() : os::yield(); });
  }
}

void PrivateHeap::resume_caches() {
  if (unsynchronized() || hold_.owner != 0) return;
  hold_.stops_caches = false;
  for (HeapCache* cache : caches_.list) {
    if (LOAM_UNLIKELY(cache->owner == nullptr)) {
      end_cache(cache);
    } else if (LOAM_UNLIKELY(caches_.closed)) {
      flush_all(cache);
    } else {
      cache->owner->open(this, cache);
    }
  }
}

// pre: the caches are stopped
void PrivateHeap::bring_home() {
  for (HeapCache* cache : caches_.list) {
    flush_all(cache);
  }
  release_all_held_back();
  if (mixed_.starter != nullptr && mixed_.starter->free_slots == mixed_.starter->slots)
    release_mixed(mixed_.starter);
}

void PrivateHeap::reclaim() {
  stop_caches();
  bring_home();
  resume_caches();
}

}  // namespace loam
