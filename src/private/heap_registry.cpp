#include "private/heap_registry.h"

#include <new>

#include "cache/cache_registry.h"
#include "map/metadata.h"
#include "os/os.h"

namespace loam {

constinit HeapRegistry heap_registry;

bool HeapRegistry::is_heap(const void* handle) const {
  const uintptr_t address = reinterpret_cast<uintptr_t>(handle);
  const uintptr_t slab = address & ~(kSlab - 1);
  if (slab == 0 || address % kRecord != 0) return false;
  for (unsigned i = slab_home(slab);; i = (i + 1) % kSlabPlaces) {
    // acquire pairs with the release in add_slab()
    const uintptr_t known = slabs_[i].load(std::memory_order_acquire);
    if (known == 0) return false;
    if (known == slab) break;
  }
  // Memory that no heap ever used reads as zero.
  return static_cast<const PrivateHeap*>(handle)->generation() != 0;
}

bool HeapRegistry::add_slab() {
  if (slab_count_ == kSlabPlaces / 2) return false;
  void* memory = os::reserve_metadata(kSlab, kSlab);
  if (memory == nullptr) return false;
  if (os::commit_more(memory, kSlab) != os::Committed::kYes) {
    os::give_up(memory, kSlab);
    return false;
  }
  slab_ = static_cast<char*>(memory);
  slab_used_ = 0;
  const uintptr_t slab = reinterpret_cast<uintptr_t>(memory);
  unsigned i = slab_home(slab);
  while (slabs_[i].load(std::memory_order_relaxed) != 0) i = (i + 1) % kSlabPlaces;
  slabs_[i].store(slab, std::memory_order_release);  // pairs with the acquire in is_heap()
  ++slab_count_;
  return true;
}

PrivateHeap* HeapRegistry::take_record() {
  const bool fresh =
      free_count_ <= kResting && ((slab_ != nullptr && slab_used_ != kSlab) || add_slab());
  if (!fresh) {
    PrivateHeap* record = free_records_.front();
    if (record == nullptr) return nullptr;
    free_records_.remove(record);
    --free_count_;
    return record;
  }
  PrivateHeap* record = new (slab_ + slab_used_) PrivateHeap();
  slab_used_ += kRecord;
  return record;
}

PrivateHeap* HeapRegistry::create(const loam_heap_options& options, loam_status* why) {
  PrivateHeap* heap;
  uint64_t generation;
  {
    Lock lock(mutex_);
    heap = take_record();
    generation = ++generations_;
  }
  if (heap == nullptr) {
    *why = LOAM_OUT_OF_MEMORY;
    return nullptr;
  }
  *why = heap->start(options, generation);
  Lock lock(mutex_);
  if (*why != LOAM_OK) {
    free_records_.push_back(heap);
    ++free_count_;
    return nullptr;
  }
  heaps_.push_back(heap);
  count_.fetch_add(1, std::memory_order_relaxed);
  return heap;
}

loam_status HeapRegistry::destroy(PrivateHeap* heap) {
  {
    Lock lock(mutex_);
    if (!is_heap(heap)) return LOAM_INVALID_HEAP;
    const uint64_t generation = heap->generation();
    const loam_status status = heap->stop_for_ever();
    if (status != LOAM_OK) return status;
    if (heap->caches_.own != nullptr) {
      // Many doors lead to the one cache of an unsynchronised heap.
      for (ThreadHeaps* thread : threads_) {
        const ThreadHeaps::Place& place = thread->places[ThreadHeaps::index_of(heap)];
        if (place.heap == heap && place.generation == generation) thread->close(heap);
      }
    }
    heaps_.remove(heap);
    count_.fetch_sub(1, std::memory_order_relaxed);
  }
  heap->finish();
  Lock lock(mutex_);
  free_records_.push_back(heap);
  ++free_count_;
  return LOAM_OK;
}

ThreadHeaps* HeapRegistry::thread() {
  if (ThreadHeaps* thread = thread_heaps()) return thread;
  // The end of the thread is noticed through malloc()'s cache.
  if (current_cache->state() == ThreadCache::State::kUnused &&
      cache_registry.start_thread() == nullptr) {
    return nullptr;
  }
  if (current_cache->state() != ThreadCache::State::kLive || !os::barrier_all_threads())
    return nullptr;
  void* piece = metadata.allocate(sizeof(ThreadHeaps));
  if (piece == nullptr) return nullptr;
  ThreadHeaps* thread = new (piece) ThreadHeaps();
  {
    Lock lock(mutex_);
    threads_.push_back(thread);
  }
  cache_registry.at_thread_end(&end_thread);
  current_cache->heaps = thread;
  return thread;
}

void HeapRegistry::vacate(ThreadHeaps* thread, size_t index) {
  ThreadHeaps::Place& place = thread->places[index];
  if (place.heap == nullptr) return;
  // Records of heaps are never used for anything else, so this also works for a destroyed heap. A
  // living heap cannot be destroyed while the registry is locked.
  PrivateHeap* heap = const_cast<PrivateHeap*>(place.heap);
  const bool alive = heap->generation() == place.generation;
  HeapCache* cache = thread->doors[index].cache;
  place = ThreadHeaps::Place{};
  thread->close(heap);
  thread->doors[index].cache = nullptr;
  if (alive && cache->owner != nullptr) heap->retire_cache(cache);
}

HeapCache* HeapRegistry::settle(ThreadHeaps* thread, PrivateHeap* heap) {
  const Inside inside(*this);
  const size_t index = ThreadHeaps::index_of(heap);
  vacate(thread, index);
  HeapCache* cache = heap->make_cache(thread);
  if (cache != nullptr)
    thread->places[index] = ThreadHeaps::Place{heap, heap->generation(), nullptr, 0};
  return cache;
}

void HeapRegistry::drop_thread(ThreadHeaps* thread) {
  {
    const Inside inside(*this);
    for (size_t i = 0; i < ThreadHeaps::kPlaces; ++i) vacate(thread, i);
    threads_.remove(thread);
  }
  thread->~ThreadHeaps();
  metadata.free(thread, sizeof(ThreadHeaps));
}

void HeapRegistry::end_thread() {
  ThreadHeaps* thread = thread_heaps();
  current_cache->heaps = nullptr;
  if (thread != nullptr) heap_registry.drop_thread(thread);
}

void HeapRegistry::lock_all() {
  mutex_.lock();
  for (PrivateHeap* heap : heaps_) {
    if (!heap->unsynchronized()) heap->mutex_.lock();
  }
}

void HeapRegistry::unlock_all() {
  for (PrivateHeap* heap : heaps_) {
    if (!heap->unsynchronized()) heap->mutex_.unlock();
  }
  mutex_.unlock();
}

void HeapRegistry::reset_locks_after_fork() {
  mutex_.reset_after_fork();
  inside_.store(0, std::memory_order_relaxed);
  for (PrivateHeap* heap : heaps_) {
    heap->reset_after_fork(this_thread());
  }
}

void HeapRegistry::adopt_after_fork() {
  for (ThreadHeaps* thread : threads_) {
    if (thread == thread_heaps()) continue;
    thread->busy.store(0, std::memory_order_relaxed);
    drop_thread(thread);
  }
}

}  // namespace loam
