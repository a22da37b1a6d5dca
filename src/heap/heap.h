// Heap: the one place where the layers meet. It has the functions that malloc's family needs. They
// have C semantics except for errno and exceptions, which the api layer adds.
//
//   bytes <= 32 KiB   a slot of a size class, through the thread's magazine
//   up to 32 MiB      a run of pages in a region, no class: cost grows page by page
//   above             a mapping of its own
//
// Thread-safe. Pointers may be freed by any thread.
#pragma once

#include "cache/large_blocks.h"
#include "cache/thread_cache.h"
#include "hardening/live_blocks.h"
#include "hardening/plain_heap.h"

namespace loam {

namespace heap {

/// A block from the thread's cache; null when the slow path must serve the request. `cache` is a
/// reference, so that a large request does not read the thread's variable.
[[nodiscard]] LOAM_INLINE void* allocate_cached(ThreadCache* const& cache, size_t bytes);
/// False when the slow path must take the block.
[[nodiscard]] LOAM_INLINE bool free_cached(ThreadCache* const& cache, void* block);

/// The fast path of malloc(); it calls all other paths. Null with errno ENOMEM when the system
/// refuses memory.
[[nodiscard]] LOAM_INLINE void* allocate(size_t bytes);
[[nodiscard]] LOAM_NOINLINE void* allocate_slow(size_t bytes);

[[nodiscard]] void* allocate_zeroed(size_t bytes);

/// pre: alignment is a power of two
[[nodiscard]] void* allocate_aligned(size_t alignment, size_t bytes);

/// The fast path of free(); null is allowed.
LOAM_INLINE void free(void* block);
LOAM_NOINLINE void free_slow(void* block);

/// The same, with the size that the caller states. The hardened heap reports a wrong size;
/// otherwise it is ignored.
LOAM_INLINE void free_sized(void* block, size_t bytes);
LOAM_NOINLINE void free_sized_slow(void* block, size_t bytes);

/// pre: block != null, bytes != 0. Null when memory is refused; the block is then unchanged.
[[nodiscard]] void* reallocate(void* block, size_t bytes);

/// Resizes without moving; false when that is impossible. pre: block != null
[[nodiscard]] bool try_resize(void* block, size_t bytes);

/// Bytes that the caller may use; 0 for null and for a pointer that is no block.
[[nodiscard]] size_t usable_size(const void* block);

/// The same; a pointer that is no block is also reported.
[[nodiscard]] size_t usable_size_or_report(const void* block);

/// The requested bytes where they are recorded (large blocks), else the usable size. pre:
/// seems_live(block)
[[nodiscard]] size_t requested_size(const void* block);

struct CompactResult {
  size_t largest_free_bytes;  ///< longest backed free run: the value that HeapCompact returns
  size_t released_bytes;      ///< given back to the system
};
/// Flushes the calling thread's cache, drains queues, returns empty spans, purges free runs and
/// free pages inside live spans. May take milliseconds.
CompactResult compact();
/// The same for all private heaps too, but for those that no other thread may use now.
void trim_all();
/// The last part of compact() alone: purges all free runs of pages.
CompactResult purge_free_pages();

/// Full walks of every structure, for tests. Other threads must be quiet.
[[nodiscard]] bool is_valid();

/// The functions on which the hardened heap is built.
[[nodiscard]] PlainHeap plain_heap();

/// Reads options and hooks fork(); once, as soon as the C library is ready.
void start();
/// At the program's end, before its memory goes: reports an overflow, a use after free or a wrong
/// pointer that no later call found, and publishes the counters' last values.
void stop();

}  // namespace heap

LOAM_INLINE void* heap::allocate_cached(ThreadCache* const& cache, size_t bytes) {
  return LOAM_LIKELY(bytes <= kFineLimit) ? os::load_pointer(cache)->pop(fine_class(bytes))
                                          : nullptr;
}

LOAM_INLINE bool heap::free_cached(ThreadCache* const& cache, void* block) {
  const size_t size_class = class_at(block);
  return os::load_pointer(cache)->push(size_class, block);
}

LOAM_INLINE void* heap::allocate(size_t bytes) {
  void* block = allocate_cached(fast_cache, bytes);
  return LOAM_LIKELY(block != nullptr) ? block : allocate_slow(bytes);
}

LOAM_INLINE void heap::free(void* block) {
  if (LOAM_LIKELY(free_cached(fast_cache, block))) return;
  free_slow(block);
}

LOAM_INLINE void heap::free_sized(void* block, size_t bytes) {
  if (LOAM_LIKELY(free_cached(fast_cache, block))) return;
  free_sized_slow(block, bytes);
}

}  // namespace loam
