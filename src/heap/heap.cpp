#include "heap/heap.h"

#include <cstring>

#include "cache/cache_registry.h"
#include "cache/resizing.h"
#include "counters/publisher.h"
#include "hardening/hardening.h"
#include "heap/all_locks.h"
#include "heap/background_purge.h"
#include "heap/default_heap.h"
#include "heap/observed.h"
#include "heap/options.h"
#include "heap/report_details.h"
#include "map/metadata.h"
#include "observers/sampler.h"
#include "os/fatal.h"
#include "os/os.h"
#include "os/system_heap.h"
#include "private/heap_registry.h"
#include "small/found_block.h"

namespace loam {
namespace heap {

namespace {

// False for a size above a slab, which is never cached, and for size 0.
LOAM_INLINE bool may_be_cached(size_t bytes) { return bytes - 1 < Pages(kPagesPerSlab).bytes(); }

// A block in a run that the thread or its shard kept, with `extra` bytes behind the requested ones.
LOAM_INLINE void* allocate_cached_run(size_t bytes, size_t alignment, bool* zero,
                                      size_t extra = 0) {
  if (!may_be_cached(bytes + extra)) return nullptr;
  const Pages pages = Pages::covering(bytes + extra);
  Span* span = alignment <= kPageBytes
                   ? current_cache->take_run(pages, bytes)
                   : current_cache->take_aligned_run(pages, Pages(alignment >> kPageShift), bytes);
  if (span == nullptr) return nullptr;
  *zero = false;
  return reinterpret_cast<void*>(span_base(span));
}

}  // namespace

void* plain::allocate_own_slot(unsigned size_class) {
  void* slot = nullptr;
  const unsigned got = default_small_heap.take_slots(
      {.size_class = size_class, .out = &slot, .wanted = 1, .home = current_cache->home});
  return got == 1 ? slot : nullptr;
}

void* plain::allocate_pages(size_t bytes, size_t alignment, size_t extra, bool* zero) {
  void* block = allocate_cached_run(bytes, alignment, zero, extra);
  return block != nullptr ? block : allocate_large_block(bytes, alignment, 0, zero, extra);
}

bool plain::is_held(const void* block) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  return walled_blocks.freed_at(address).block == address;
}

namespace {

// The path of a request whose magazine is empty.
LOAM_INLINE void* allocate_uncached(ThreadCache* cache, unsigned size_class, size_t bytes) {
  return LOAM_UNLIKELY(detours() != 0) ? observed::allocate(size_class, bytes, {})
                                       : cache->allocate_slow(size_class);
}

// A large block of the default heap.
LOAM_INLINE void* allocate_pages(size_t bytes, size_t alignment, bool* zero) {
  if (LOAM_UNLIKELY(detours() != 0)) return observed::allocate_pages(bytes, alignment, zero);
  void* block = allocate_cached_run(bytes, alignment, zero);
  return block != nullptr ? block : allocate_large_block(bytes, alignment, 0, zero);
}

// pre: found.kind == FoundBlock::kPrivate
PrivateHeap* heap_of(const FoundBlock& found) {
  return static_cast<const HeapRun*>(found.owner)->heap;
}

// pre: bytes <= kLargestSmall
LOAM_INLINE unsigned present_class(size_t bytes) {
  return bytes <= kFineLimit ? fine_class(bytes) : split_classes.class_for(bytes);
}

LOAM_INLINE bool may_stay(const void* block, size_t slot_bytes, size_t bytes) {
  const bool is_cut = current_cache->cuts(block, bytes);
  return bytes <= slot_bytes && worth_staying(slot_bytes, bytes, is_cut);
}

void* move_to(void* block, size_t old_bytes, size_t bytes) {
  void* moved = allocate(bytes);
  if (moved == nullptr) return nullptr;
  memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
  heap::free(block);
  return moved;
}

// pre: a large run, and bytes > found.bytes
void* move_to_mapping(void* block, const FoundBlock& found, size_t bytes) {
  if (detours() == 0) {
    if (void* moved = huge_map.take_over(found.span, bytes, 0)) return moved;
  }
  bool zero = false;
  void* const moved = LOAM_LIKELY(detours() == 0)
                          ? huge_map.allocate(bytes, kPageBytes, 0, &zero, 0, true)
                          : observed::allocate_mapping(bytes);
  if (moved == nullptr) return nullptr;
  memcpy(moved, block, found.bytes);
  heap::free(block);
  return moved;
}

LOAM_INLINE size_t with_room_to_grow(size_t slot_bytes, size_t bytes) {
  if (bytes - slot_bytes >= slot_bytes / kSmallStepShare || bytes > kLargestSmall) return bytes;
  const size_t room = bytes + bytes / kSmallStepShare;
  return room < kLargestSmall ? room : kLargestSmall;
}

LOAM_INLINE void* stay(void* block, size_t slot_bytes, size_t bytes) {
  if (LOAM_UNLIKELY(detours() != 0)) observed::stay(block, slot_bytes, bytes);
  return block;
}

// A separate function, so that a block that stays saves no registers.
LOAM_NOINLINE void* move_small(void* block, size_t slot_bytes, size_t bytes) {
  const bool grows = bytes > slot_bytes;
  if (!grows && class_info(present_class(bytes)).bytes == slot_bytes)
    return stay(block, slot_bytes, bytes);
  const size_t room = grows ? with_room_to_grow(slot_bytes, bytes) : bytes;
  void* moved = move_to(block, slot_bytes, room);
  // Where no memory is left, a block that gets shorter stays.
  if (!grows) return LOAM_LIKELY(moved != nullptr) ? moved : stay(block, slot_bytes, bytes);
  current_cache->note_grown(moved, bytes);
  if (LOAM_LIKELY(room == bytes)) return moved;
  if (LOAM_UNLIKELY(moved == nullptr)) return move_to(block, slot_bytes, bytes);
  if (LOAM_UNLIKELY(sampler.on())) sampler.resize(moved, usable_size(moved), bytes);
  return moved;
}

// find() for the common case, with fewer reads: true if a slot of a span of the class begins there.
// pre: class_at(block)
LOAM_INLINE bool begins_slot_of(unsigned size_class, const void* block) {
  if (LOAM_UNLIKELY(!has_own_spans(size_class))) return false;
  const Span* span = span_at(reinterpret_cast<uintptr_t>(block));
  return LOAM_LIKELY(span != nullptr) &&
         begins_slot(class_info(size_class), offset_in(span, block));
}

bool resize_found(void* block, const FoundBlock& found, size_t bytes) {
  switch (found.kind) {
    case FoundBlock::kSmall:
      return bytes <= found.bytes;
    case FoundBlock::kLarge:
      return bytes > kLargestSmall && bytes <= kMaxRun.bytes() &&
             page_heap.resize_large(found.span, Pages::covering(bytes), bytes);
    case FoundBlock::kHuge:
      return bytes > kLargestSmall &&
             huge_map.resize(reinterpret_cast<uintptr_t>(block), bytes, true) != nullptr;
    case FoundBlock::kPrivate:
      return heap_of(found)->try_resize(block, bytes) == LOAM_OK;
    case FoundBlock::kNothing:
      break;
  }
  return false;
}

// Does not look at the runs that the thread keeps, unless there is a detour.
LOAM_NOINLINE void* allocate_unkept(size_t bytes) {
  current_cache->poll_probes();
  bool zero = false;
  void* block = LOAM_UNLIKELY(detours() != 0) ? observed::allocate_pages(bytes, kPageBytes, &zero)
                                              : allocate_large_block(bytes, kPageBytes, 0, &zero);
  if (LOAM_UNLIKELY(block == nullptr)) os::set_errno_out_of_memory();
  return block;
}

}  // namespace

void* allocate_slow(size_t bytes) {
  if (bytes > kLargestSmall) {
    if (LOAM_UNLIKELY(detours() != 0 || !may_be_cached(bytes))) return allocate_unkept(bytes);
    Span* span = current_cache->take_run(Pages::covering(bytes), bytes);
    return LOAM_LIKELY(span != nullptr) ? reinterpret_cast<void*>(span_base(span))
                                        : allocate_unkept(bytes);
  }
  const unsigned size_class = present_class(bytes);
  void* block = os::load_pointer(fast_cache)->pop(size_class);
  if (block == nullptr) {
    if (bytes > kFineLimit) default_small_heap.note_request(size_class, bytes);
    if (LOAM_UNLIKELY(detours() != 0)) return observed::allocate_for_caller(size_class, bytes);
    block = current_cache->allocate_slow(size_class);
  }
  if (LOAM_UNLIKELY(block == nullptr)) os::set_errno_out_of_memory();
  return block;
}

void* allocate_zeroed(size_t bytes) {
  if (LOAM_LIKELY(bytes <= kLargestSmall)) {
    void* block = allocate(bytes);
    return LOAM_LIKELY(block != nullptr) ? memset(block, 0, bytes) : nullptr;
  }
  bool zero = true;
  void* block = allocate_pages(bytes, kPageBytes, &zero);
  if (block != nullptr && !zero) memset(block, 0, bytes);
  return block;
}

void* plain::allocate_aligned(size_t alignment, size_t bytes) {
  const unsigned size_class = class_for_aligned(bytes, alignment);
  if (size_class != 0) {
    ThreadCache* cache = current_cache;
    void* block = cache->pop(size_class);
    if (block == nullptr) block = allocate_uncached(cache, size_class, bytes);
    if (LOAM_LIKELY((reinterpret_cast<uintptr_t>(block) & (alignment - 1)) == 0)) return block;
    // The block was cut from a mixed span, which keeps only an alignment of 16 bytes. A slot of the
    // class's own spans is aligned.
    void* const aligned = plain::allocate_own_slot(size_class);
    heap::free(block);
    if (LOAM_UNLIKELY(detours() != 0) && aligned != nullptr) observed::count_uncached(size_class);
    return aligned;
  }
  bool zero = false;
  return heap::allocate_pages(bytes, alignment, &zero);
}

void* allocate_aligned(size_t alignment, size_t bytes) {
  if (alignment <= 16) return allocate(bytes);
  return LOAM_UNLIKELY(detours() != 0) ? observed::allocate_aligned(alignment, bytes)
                                       : plain::allocate_aligned(alignment, bytes);
}

namespace {

// Usable bytes of a block of the C library's own allocator; 0 for every other pointer.
LOAM_COLD size_t system_bytes(const void* block) {
  return page_heap.reserves(reinterpret_cast<uintptr_t>(block)) ? 0 : os::system_block_bytes(block);
}

}  // namespace

void plain::free_pages(Span* span, void* block) {
  const FoundBlock found = find_block_in(span, block);
  switch (found.kind) {
    case FoundBlock::kPrivate: {
      const loam_status status = heap_of(found)->free(block);
      if (status == LOAM_OK) return;
      if (status == LOAM_CORRUPT) return PrivateHeap::report_overflow(block);
      break;
    }
    case FoundBlock::kLarge:
      if (!current_cache->free_run(found.span)) current_cache->free_run_slow(found.span);
      return;
    case FoundBlock::kHuge:
      if (huge_map.free(reinterpret_cast<uintptr_t>(block), !hardening.on())) return;
      break;
    case FoundBlock::kNothing:
      if (system_bytes(block) != 0) return os::free_system_block(block);
      break;
    case FoundBlock::kSmall:
      break;
  }
  report_misuse(
      is_held(block)
          ? "double free"
          : "free of a pointer that is no block (freed already, misaligned, or not from this heap)",
      block);
}

namespace {

// True if the block is a run of pages that the thread's cache may take, and no detour has to see
// it. pre: span == span_at(block)
LOAM_INLINE bool is_plain_run(const Span* span, const void* block) {
  if (span == nullptr || span->run_kind() != SpanKind::kLarge || span->heap != kDefaultHeap ||
      detours() != 0)
    return false;
  if (background_purge.is_idle() || publisher.is_idle()) return false;
  return reinterpret_cast<uintptr_t>(block) % kPageBytes == 0;  // only its first page names a run
}

}  // namespace

void plain::free(unsigned size_class, void* block) {
  os::ErrnoGuard guard;
  LOAM_UNLIKELY(detours() != 0) ? observed::free_cached(size_class, block)
                                : current_cache->free_slow(size_class, block);
  background_purge.poke(page_heap.hints().wants_ticks());
  publisher.poke();
}

namespace {

// Frees a block that is no small block of the default heap, nor a run that the thread's cache took.
// pre: span == span_at(block)
LOAM_NOINLINE void free_unkept(Span* span, void* block, const void* caller) {
  os::ErrnoGuard guard;
  // A private heap's block: the map says class 0 for it.
  if (span != nullptr && span->heap == kPrivateHeap) {
    const PrivateHeap* const heap = static_cast<const PrivateHeap*>(span->owner());
    if (PrivateHeap::push(heap, span, block) || PrivateHeap::push_special(heap, span, block))
      return;
  }
  LOAM_UNLIKELY(detours() != 0) ? observed::free_pages(block, caller)
                                : plain::free_pages(span, block);
  background_purge.poke(true);
  publisher.poke();
}

}  // namespace

void free_slow(void* block) {
  if (block == nullptr) return;
  // The caller of free(), which ends in a jump to here. The rest of the work is in separate
  // functions, so that a run that is kept saves no more registers than it needs.
  const void* const caller = __builtin_return_address(0);
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  if (Region* region = region_at(address); LOAM_LIKELY(region != nullptr)) {
    const PageId page = Region::page_of(address);
    const unsigned size_class = class_in(region, page);
    if (LOAM_LIKELY(size_class != 0 && address % 16 == 0)) {
      return LOAM_UNLIKELY(detours() != 0) ? observed::free(size_class, block, caller)
                                           : plain::free(size_class, block);
    }
    Span* span = span_in(region, page);
    if (LOAM_UNLIKELY(!is_plain_run(span, block))) return free_unkept(span, block, caller);
    if (LOAM_LIKELY(current_cache->free_run(span))) return;
  }
  free_unkept(span_at(address), block, caller);
}

void free_sized_slow(void* block, size_t bytes) {
  if (!hardening.on() || block == nullptr) return free_slow(block);
  os::ErrnoGuard guard;
  observed::free_sized(block, bytes, __builtin_return_address(0));
}

namespace {

void* resize_run(void* block, const FoundBlock& found, size_t bytes) {
  if (bytes > found.bytes && bytes > kMovesToMapping) {
    if (void* moved = move_to_mapping(block, found, bytes)) return moved;
  }
  if (!resize_found(block, found, bytes)) return move_to(block, found.bytes, bytes);
  if (LOAM_UNLIKELY(detours() != 0)) observed::resize_run(block, bytes);
  return block;
}

}  // namespace

void* plain::reallocate_found(void* block, size_t bytes) {
  const FoundBlock found = find_block(block);
  switch (found.kind) {
    case FoundBlock::kSmall:
      if (LOAM_UNLIKELY(
              current_cache->freed_recently(static_cast<unsigned>(class_at(block)), block)))
        break;
      return may_stay(block, found.bytes, bytes) ? stay(block, found.bytes, bytes)
                                                 : move_small(block, found.bytes, bytes);
    case FoundBlock::kLarge:
      return resize_run(block, found, bytes);
    case FoundBlock::kHuge:
      if (bytes > kMovesToMapping) {
        const Call call{.block = block, .bytes = bytes, .old_bytes = found.bytes};
        void* const resized = AroundCalls::serve<kMove>(call, [&] {
          return huge_map.resize(reinterpret_cast<uintptr_t>(block), bytes, false);
        });
        if (resized != nullptr) return resized;
      }
      return move_to(block, found.bytes, bytes);
    case FoundBlock::kPrivate: {
      loam_status why;
      void* moved = heap_of(found)->reallocate(block, bytes, LOAM_ALIGNMENT, false, &why);
      if (why == LOAM_INVALID_BLOCK) break;
      if (why == LOAM_CORRUPT) PrivateHeap::report_overflow(block);
      return moved;
    }
    case FoundBlock::kNothing:
      if (const size_t its = system_bytes(block); its != 0) return move_to(block, its, bytes);
      break;
  }
  report_misuse(
      is_held(block)
          ? "realloc of a freed block"
          : "realloc of a pointer that is no block (freed already, or not from this heap)",
      block);
  return nullptr;
}

namespace {

LOAM_INLINE void* reallocate_plain(void* block, size_t bytes) {
  const unsigned size_class = static_cast<unsigned>(class_at(block));
  if (LOAM_LIKELY(has_own_spans(size_class)) &&
      LOAM_LIKELY(!current_cache->freed_recently(size_class, block))) {
    const size_t slot_bytes = class_info(size_class).bytes;
    // A block that stays needs no read of its span, a line that may be in no cache. A pointer into
    // a block's middle is found when it is freed, or moved.
    if (may_stay(block, slot_bytes, bytes)) return stay(block, slot_bytes, bytes);
    if (LOAM_LIKELY(begins_slot_of(size_class, block))) return move_small(block, slot_bytes, bytes);
  }
  return plain::reallocate_found(block, bytes);
}

}  // namespace

void* plain::reallocate(void* block, size_t bytes) { return reallocate_plain(block, bytes); }

bool plain::resize_in_place(void* block, size_t bytes) {
  return resize_found(block, find_block(block), bytes);
}

void* reallocate(void* block, size_t bytes) {
  if (LOAM_UNLIKELY(bytes > kLargestRequest)) return nullptr;
  if (LOAM_UNLIKELY(detours() != 0))
    return observed::reallocate(block, bytes, __builtin_return_address(0));
  return reallocate_plain(block, bytes);
}

bool try_resize(void* block, size_t bytes) {
  return LOAM_UNLIKELY(detours() != 0) ? observed::try_resize(block, bytes)
                                       : resize_found(block, find_block(block), bytes);
}

namespace {

// For a block that is no slot of one class's span; in the hardened heap, for a block that it does
// not own.
LOAM_NOINLINE size_t usable_size_of_found(const void* block) {
  if (block == nullptr) return 0;
  const FoundBlock found = find_block(block);
  if (found.kind == FoundBlock::kNothing) return system_bytes(block);
  if (found.kind == FoundBlock::kPrivate) {
    const PrivateHeap::Found its = heap_of(found)->find(block);
    if (its.status == LOAM_OK || its.status == LOAM_CORRUPT)
      return heap_of(found)->canary() ? its.bytes : its.usable;
  } else if (!hardening.on() || is_live(block)) {
    return found.bytes;
  }
  return 0;
}

}  // namespace

size_t usable_size(const void* block) {
  if (LOAM_UNLIKELY(hardening.on())) {
    // The bytes behind the requested ones belong to the canary.
    return hardening.owns(block) ? hardening.requested(block) : usable_size_of_found(block);
  }
  const unsigned size_class = static_cast<unsigned>(class_at(block));
  // As in reallocate(): a pointer into a block's middle is found when it is freed.
  return LOAM_LIKELY(has_own_spans(size_class)) ? class_info(size_class).bytes
                                                : usable_size_of_found(block);
}

size_t usable_size_or_report(const void* block) {
  const size_t bytes = usable_size(block);
  if (LOAM_LIKELY(bytes != 0) || block == nullptr || hardening.owns(block)) return bytes;
  const bool freed = hardening.freed(block) || plain::is_held(block);
  report_misuse(freed ? "malloc_usable_size of a freed block"
                      : "malloc_usable_size of a pointer that is no block (freed already, or not "
                        "from this heap)",
                block);
  return 0;
}

size_t requested_size(const void* block) {
  if (hardening.owns(block)) return hardening.requested(block);
  const FoundBlock found = find_block(block);
  if (found.kind == FoundBlock::kLarge) return found.span->large.requested;
  if (found.kind == FoundBlock::kHuge)
    return huge_map.find(reinterpret_cast<uintptr_t>(block)).requested;
  return found.bytes;
}

CompactResult compact() {
  // The quarantine is checked here, because a program that trims has usually finished some work.
  hardening.quarantine_is_intact(true);
  cache_registry.flush_current();
  const Pages released = default_small_heap.compact();
  CompactResult result = purge_free_pages();
  result.released_bytes += released.bytes();
  return result;
}

void trim_all() {
  heap_registry.for_each([](PrivateHeap* each) {
    // The program serialises the calls of such a heap, and does not expect this one.
    if ((each->flags() & LOAM_HEAP_UNSYNCHRONIZED) != 0) return;
    // A heap that a thread has locked is left alone too: that thread may wait for the registry's
    // lock, which is held here.
    if (each->try_lock() != LOAM_OK) return;
    size_t largest;
    static_cast<void>(each->compact(&largest));
    static_cast<void>(each->unlock());
  });
  static_cast<void>(compact());
}

CompactResult purge_free_pages() {
  CompactResult result{};
  result.largest_free_bytes = page_heap.stats().longest_backed_run_bytes;
  result.released_bytes =
      page_heap.purge_all().bytes() + page_heap.purge_records() + metadata.purge(SIZE_MAX);
  return result;
}

namespace {

// Checks, in the hardened heap, every canary and the poison of the quarantine.
bool blocks_are_intact() {
  if (!hardening.on()) return true;
  loam_walk_entry entry{};
  entry.size = sizeof entry;
  while (default_heap::walk_next(&entry) == LOAM_OK) {
    if (entry.kind >= LOAM_ENTRY_SMALL && !hardening.intact(entry.address)) return false;
  }
  return hardening.quarantine_is_intact(false);
}

}  // namespace

bool is_valid() {
  return blocks_are_intact() && default_small_heap.is_valid() && page_heap.is_valid() &&
         huge_map.is_valid() && current_cache->is_valid();
}

void stop() {
  hardening.check_everything();
  // Another thread may be in the middle of a call with one of these heaps.
  if (heap_registry.count() != 0 && cache_registry.totals().threads <= 1) {
    heap_registry.for_each(
        [](PrivateHeap* heap) { static_cast<void>(heap->blocks_are_intact(true)); });
  }
  current_cache->check_all();
  publisher.stop();
}

void start() {
  os::start();
  register_fork();
  set_report_details(&describe_for_report);
  apply_options(&plain_heap);
}

}  // namespace heap
}  // namespace loam
