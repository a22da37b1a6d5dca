#include "private/private_heap.h"

#include <cstring>

#include "base/text.h"
#include "cache/large_blocks.h"
#include "hardening/canary.h"
#include "hardening/hardening.h"
#include "hardening/live_blocks.h"
#include "map/metadata.h"
#include "os/os.h"
#include "pages/huge_map.h"
#include "pages/page_heap.h"
#include "private/heap_registry.h"

namespace loam {

// ---- beginning and end ------------------------------------------------------------------------

loam_status PrivateHeap::start(const loam_heap_options& options, uint64_t generation) {
  held_back_ = nullptr;
  serials_ = 0;
  hold_ = {};
  account_ = {};
  caches_ = {};
  mixed_ = {};
  fall_ = {};
  fall_.step = kLeastFallStep;
  asked_ = {options.flags, options.on_failure, options.context, 0, {}};
  flags_ = options.flags;
  if (hardening.has(Hardening::kCanary)) flags_ |= LOAM_HEAP_CANARY;
  if (hardening.has(Hardening::kQuarantine)) flags_ |= LOAM_HEAP_POISON;
  if (hardening.has(Hardening::kZero)) flags_ |= LOAM_HEAP_ZERO_ON_FREE;
  if (canary()) {
    flags_ |= LOAM_HEAP_EXACT_SIZES;
    start_canaries();
  }
  mode_.store((flags_ & LOAM_HEAP_EAGER) != 0 ? LOAM_MODE_LOW_FRAGMENTATION : LOAM_MODE_STANDARD,
              std::memory_order_relaxed);
  if (options.name != nullptr) text::copy(asked_.name, options.name, sizeof asked_.name);
  set_small_threshold(LOAM_MAX_SMALL_THRESHOLD);
  if (options.maximum != 0) {
    if (options.maximum > kLargestRequest) return LOAM_INVALID_ARGUMENT;
    account_.maximum = Pages::covering(options.maximum).bytes();
  }
  // A size beyond every address space is not tried piece by piece. (Beyond the maximum the first
  // piece is refused.)
  const bool has_addresses = options.initial >> kAddressBits == 0;
  if (options.initial > kLargestRequest || (account_.maximum == 0 && !has_addresses))
    return LOAM_OUT_OF_MEMORY;
  if (!charge(sizeof(PrivateHeap))) return LOAM_LIMIT_REACHED;
  account_.records = sizeof(PrivateHeap);
  const loam_status status = set_aside(Pages::covering(options.initial));
  status == LOAM_OK ? generation_.store(generation, std::memory_order_release) : finish();
  return status;
}

// Takes the heap's initial memory.
loam_status PrivateHeap::set_aside(Pages left) {
  if (account_.maximum != 0 && left.bytes() <= account_.maximum) {
    // The heap's records are a part of the requested memory. Otherwise no heap could begin at its
    // maximum.
    const size_t records =
        account_.charged + (left.count / kMaxRun.count + 1) * charged_for_record(sizeof(HeapRun));
    const Pages room(records < account_.maximum ? (account_.maximum - records) >> kPageShift : 0);
    if (left > room) left = room;
  }
  for (loam_status why; left.count != 0;) {
    // In pieces that a run can hold; each gives way from its end.
    const Pages pages = left > kMaxRun ? kMaxRun : left;
    HeapRun* run = new_run(pages.bytes(), sizeof(HeapRun), &why);
    Span* span = run == nullptr
                     ? nullptr
                     : page_heap.allocate_large(pages, Pages(1), kNobodysBlock, kPrivateHeap).span;
    if (span == nullptr) {
      if (run != nullptr) drop_run(run, sizeof(HeapRun));
      return run == nullptr ? why : LOAM_OUT_OF_MEMORY;
    }
    run->base = span_base(span);
    run->use = RunUse::kSetAside;
    run->span = span;
    set_run(span, run);
    add_run(run);
    account_.set_aside += pages.bytes();
    left -= pages;
  }
  return LOAM_OK;
}

loam_status PrivateHeap::stop_for_ever() {
  Lock lock(mutex_);
  if (hold_.owner != 0 && hold_.owner != this_thread()) return LOAM_BUSY;
  generation_.store(0, std::memory_order_release);
  close_doors();
#if defined(LOAM_DEBUG)
  if (!unsynchronized() && !caches_.list.empty() && os::barrier_all_threads()) {
    for (HeapCache* cache : caches_.list) {
      if (cache->owner == nullptr) continue;
      // Many looks, because the store is on its way. A thread that is busy with another heap may
      // stay there for as long as the system likes.
      const auto is_inside = [&] {
        return cache->owner->inside.load(std::memory_order_relaxed) == this;
      };
      for (int looks = 0; cache->owner->busy.load(std::memory_order_acquire) != 0 && is_inside();
           ++looks) {
        if (looks == 1000) fatal("a private heap is destroyed while a thread uses it", this);
        os::yield();
      }
    }
  }
#endif
  hold_.owner = 0;
  hold_.depth = 0;
  return LOAM_OK;
}

void PrivateHeap::finish() {
  static_cast<void>(blocks_are_intact(true));
  while (HeapCache* cache = caches_.list.front()) {
    caches_.list.remove(cache);
    free_cache(cache);
  }
  caches_.own = nullptr;
  note_held(Pages(0));
  note_hollow(0);
  release_all_held_back();
  while (HeapRun* run = runs_.front()) release_run(run);
  for (HeapBins*& group : groups_) {
    if (group != nullptr) free_record(group, sizeof(HeapBins));
    group = nullptr;
  }
}

// ---- accounts -----------------------------------------------------------------------------------

bool PrivateHeap::charge(size_t bytes) {
  if (account_.maximum != 0 &&
      (bytes > account_.maximum || account_.charged > account_.maximum - bytes))
    return false;
  account_.charged += bytes;
  if (account_.charged > account_.peak) account_.peak = account_.charged;
  return true;
}

size_t PrivateHeap::room() {
  Use use(*this);
  return account_.maximum == 0 ? SIZE_MAX : account_.maximum - account_.charged;
}

// The bytes of a record in pieces of the metadata.
size_t PrivateHeap::charged_for_record(size_t bytes) {
  size_t piece = MetadataArena::kSmallestPiece;
  while (piece < bytes) piece *= 2;
  return piece;
}

void* PrivateHeap::allocate_record(size_t bytes) {
  const size_t piece = charged_for_record(bytes);
  if (account_.set_aside != 0 && account_.maximum != 0 &&
      account_.charged + piece > account_.maximum)
    use_set_aside(Pages::covering(piece));
  if (!charge(piece)) return nullptr;
  void* record = metadata.allocate(bytes);
  if (record == nullptr) {
    uncharge(piece);
    return nullptr;
  }
  account_.records += piece;
  return record;
}

void PrivateHeap::free_record(void* record, size_t bytes) {
  const size_t piece = charged_for_record(bytes);
  metadata.free(record, bytes);
  account_.records -= piece;
  uncharge(piece);
}

// Charges the heap for a run's bytes and record. Null with *why set; then nothing is charged.
HeapRun* PrivateHeap::new_run(size_t bytes, size_t record_bytes, loam_status* why) {
  if (!charge(bytes)) {
    *why = LOAM_LIMIT_REACHED;
    return nullptr;
  }
  HeapRun* const run = static_cast<HeapRun*>(allocate_record(record_bytes));
  if (run == nullptr) {
    *why = why_no_record(record_bytes);
    uncharge(bytes);
    return nullptr;
  }
  run->heap = this;
  run->bytes = bytes;
  return run;
}

void PrivateHeap::drop_run(HeapRun* run, size_t record_bytes) {
  uncharge(run->bytes);
  free_record(run, record_bytes);
}

// Memory that was set aside gives way from its end, so the page heap finds there the pages that the
// caller requests next.
void PrivateHeap::use_set_aside(Pages pages) {
  if (LOAM_LIKELY(account_.set_aside == 0)) return;
  for (HeapRun* run : runs_) {
    if (pages.count == 0 || run->use != RunUse::kSetAside) break;  // they are the oldest
    const Pages have(run->bytes >> kPageShift);
    const Pages part = pages < have ? pages : have;
    account_.set_aside -= part.bytes();
    uncharge(part.bytes());
    pages -= part;
    if (part == have) {
      run->bytes = 0;  // uncharged already
      release_run(run);
    } else {
      run->bytes -= part.bytes();
      const bool shrunk = page_heap.resize_large(run->span, have - part, kNobodysBlock);
      LOAM_CHECK(shrunk, "private heap: a run refused to shrink");
    }
  }
}

void PrivateHeap::add_run(HeapRun* run) {
  run->serial = ++serials_;
  runs_.push_back(run);
}

void PrivateHeap::release_run(HeapRun* run) {
  runs_.remove(run);
  const size_t record_bytes = run->record_bytes();
  if (run->span != nullptr) {
    if (run->use == RunUse::kSpan) run->span->own(nullptr);
    if (run->slots != 0) account_.unbacked_pages -= count_bits(run->span->unbacked_pages);
    if (run->use == RunUse::kMixed && run->former() != nullptr) {
      free_record(run->former(), run->former()->record_bytes());
    }
    set_run(run->span, nullptr);
    page_heap.free(run->span);
  } else {
    // Memory that waits for the next block keeps its content, and a late read or write of the old
    // block does not fault there.
    const bool may_wait = !hardening.on() && !zero_on_free() && !poisons();
    static_cast<void>(huge_map.free(run->base, may_wait));
  }
  drop_run(run, record_bytes);
}

// ---- allocating ---------------------------------------------------------------------------------

void* PrivateHeap::allocate(size_t bytes, size_t alignment, bool zero, loam_status* why) {
  if (bytes > kLargestRequest) {
    *why = LOAM_OUT_OF_MEMORY;
    return nullptr;
  }
  unsigned size_class = 0;
  if (alignment > LOAM_ALIGNMENT) {
    size_class = class_for_aligned(bytes + canary_bytes(), alignment);
  } else if (bytes <= kLargestSmall - canary_bytes()) {
    size_class = class_for(bytes + canary_bytes());
  }
  if (size_class == 0) return allocate_large(bytes, alignment, zero, why);
  Request request{size_class, bytes, alignment > LOAM_ALIGNMENT ? alignment : LOAM_ALIGNMENT};
  if (!allocate_small(&request, why)) return nullptr;
  if (zero) memset(request.block, 0, canary() ? bytes : request.usable);
  return request.block;
}

bool PrivateHeap::take_slot(HeapCache* cache, Request* request, loam_status* why) {
  const unsigned size_class = request->size_class;
  CacheSlot slot;
  HeapMagazine* const m = cache == nullptr ? nullptr : &cache->magazines[size_class];
  if (m != nullptr && (m->head != m->base || refill(cache, size_class, why))) {
    slot = *--m->head;
  } else if (take(size_class, &slot, 1, why) != 1) {
    return false;
  }
  request->block = slot.block;
  request->usable = kSizeClasses[size_class].bytes;
  // Under the lock, for a thread that validates the heap meanwhile.
  if (canary()) write_canary(slot.block, request->bytes, request->usable);
  store_state(slot.state, exact(), live_state(exact(), request->bytes));
  note_busy(bin_of(size_class));
  return true;
}

bool PrivateHeap::allocate_small(Request* request, loam_status* why) {
  const unsigned size_class = request->size_class;
  HeapCache* cache = is_cached(size_class) ? cache_for_thread() : nullptr;
  Use use(*this);
  if (LOAM_UNLIKELY(!is_cached(size_class))) cache = nullptr;
  const bool may_start =
      mode() == LOAM_MODE_STANDARD && request->alignment == LOAM_ALIGNMENT && !poisons();
  bool served = may_start && take_from_starter(request);
  if (!served && take_slot(cache, request, why)) return true;
  if (!served) served = take_from_mixed(request);
  if (!served) {
    // Blocks that other threads cache, and empty spans, may make room.
    stop_caches();
    bring_home();
    const bool took = take_slot(cache, request, why);
    if (!took) served = squeeze(request);
    resume_caches();
    if (took) return true;
  }
  if (served && canary()) write_canary(request->block, request->bytes, request->usable);
  return served;
}

void* PrivateHeap::allocate_large(size_t bytes, size_t alignment, bool zero, loam_status* why,
                                  bool grows) {
  const size_t pages = Pages::covering((bytes == 0 ? 1 : bytes) + canary_bytes()).bytes();
  HeapRun* run = nullptr;
  {
    Use use(*this);
    use_set_aside(Pages(pages >> kPageShift));
    for (int attempt = 0; attempt < 2 && run == nullptr; ++attempt) {
      if (attempt == 1) {
        if (pages > account_.maximum) break;
        reclaim();
      }
      *why = LOAM_LIMIT_REACHED;
      if (has_room(pages, sizeof(HeapRun), false)) run = new_run(pages, sizeof(HeapRun), why);
    }
    if (run == nullptr) return nullptr;
    account_.coming_bytes += pages;
  }
  // Not under the heap's lock: the system call may take long.
  bool is_zero = zero;
  const auto owner = reinterpret_cast<uintptr_t>(run);
  void* block = grows ? huge_map.allocate(bytes, alignment, owner, &is_zero, canary_bytes(), true)
                      : allocate_large_block(bytes, alignment, owner, &is_zero, canary_bytes());
  if (block != nullptr && zero && !is_zero) memset(block, 0, pages);
  if (block != nullptr && canary()) write_canary(block, bytes, pages);
  Use use(*this);
  account_.coming_bytes -= pages;
  if (block == nullptr) {
    *why = LOAM_OUT_OF_MEMORY;
    drop_run(run, sizeof(HeapRun));
    return nullptr;
  }
  run->base = reinterpret_cast<uintptr_t>(block);
  run->requested = bytes;
  Span* span = span_at(run->base);
  run->span = span != nullptr && span->kind == SpanKind::kLarge && span_base(span) == run->base
                  ? span
                  : nullptr;
  run->use = run->span != nullptr ? RunUse::kLarge : RunUse::kHuge;
  if (run->span != nullptr) set_run(span, run);
  add_run(run);
  ++account_.large_taken;
  account_.large_bytes += pages;
  return block;
}

// ---- finding and freeing -----------------------------------------------------------------------

PrivateHeap::Found PrivateHeap::locate(const void* block) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(block);
  Found found{LOAM_INVALID_BLOCK};
  HeapRun* run = private_run_at(block);
  if (run == nullptr) {
    // A mapping of its own may lie anywhere.
    const HugeMap::Entry entry = huge_map.find(address);
    if (entry.address == 0 || entry.heap == 0) return found;
    run = reinterpret_cast<HeapRun*>(entry.heap);
    if (run->use != RunUse::kHuge) return found;
  }
  if (run->slots != 0) {
    const size_t slot = run->slot_from(address - run->base);
    if (slot >= run->slots || address - run->base != run->offset_of(slot)) return found;
    found.state = run->state_of(slot);
    const unsigned state = load_state(found.state, run->exact);
    if (state < kSlotLive) return found;
    found.usable = run->use == RunUse::kSpan
                       ? run->slot_bytes
                       : kSizeClasses[class_within(run->bytes_at(slot))].bytes;
    found.bytes = run->exact ? state - kSlotLive : found.usable;
  } else {
    if (run->use == RunUse::kSetAside || address != run->base) return found;
    found.usable = run->bytes;
    found.bytes = run->requested;
  }
  found.run = run;
  found.status = LOAM_OK;
  return found;
}

PrivateHeap::Found PrivateHeap::find(const void* block) const {
  Found found = locate(block);
  if (found.status == LOAM_OK) {
    if (found.run->heap != this) {
      found.status = LOAM_WRONG_HEAP;
    } else if (canary() && first_overwritten(block, found.bytes, found.usable) != found.usable) {
      found.status = LOAM_CORRUPT;
    }
  } else if (seems_live(block)) {
    found.status = LOAM_WRONG_HEAP;
  }
  return found;
}

PrivateHeap* PrivateHeap::heap_of(const void* block) {
  const Found found = locate(block);
  return found.status == LOAM_OK ? found.run->heap : nullptr;
}

loam_status PrivateHeap::free(void* block) {
  Found found = find(block);
  if (found.status != LOAM_OK) return found.status;
  if (found.run->slots == 0) return free_large(found, block);
  if (zero_on_free() && !poisons()) memset(block, 0, end_of(found));
  const unsigned size_class = found.run->size_class;
  HeapCache* cache = size_class != 0 && is_cached(size_class) ? cache_for_thread() : nullptr;
  Use use(*this);
  if (LOAM_UNLIKELY(!is_cached(size_class))) cache = nullptr;
  if (LOAM_UNLIKELY(found.run->list == kReplacedRun)) {
    found = find(block);  // another thread cut the span anew
    if (found.status != LOAM_OK || found.run->slots == 0) return LOAM_INVALID_BLOCK;
  }
  if (load_state(found.state, found.run->exact) < kSlotLive)
    return LOAM_INVALID_BLOCK;  // another thread was first
  if (found.run->use == RunUse::kMixed) {
    // Not held back: a full heap needs the memory at once.
    if (zero_on_free() && poisons()) memset(block, 0, end_of(found));
    give_to_mixed(found.run, block);
    return LOAM_OK;
  }
  const CacheSlot slot{block, found.state};
  store_state(slot.state, found.run->exact, kSlotCached);
  if (LOAM_UNLIKELY(poisons())) {
    hold_back(slot, found.usable);
    return LOAM_OK;
  }
  if (cache == nullptr) {
    give(&slot, 1);
    note_fall(nullptr);
    return LOAM_OK;
  }
  HeapMagazine& m = cache->magazines[size_class];
  if (m.head == m.end && (cache->short_refills != 0 || !grow(cache, size_class, Way::kGive))) {
    if (m.base != nullptr) {
      ++cache->flushes;
      flush(m, magazine_policy::overflow_count(kSizeClasses[size_class].bytes, m.capacity()));
    }
    note_fall(cache);
    if (m.base == nullptr) {
      give(&slot, 1);
      return LOAM_OK;
    }
  }
  *m.head = slot;
  ++m.head;
  return LOAM_OK;
}

loam_status PrivateHeap::free_large(const Found& found, void* block) {
  HeapRun* run = found.run;
  if (zero_on_free() && run->use == RunUse::kLarge) memset(block, 0, end_of(found));
  Use use(*this);
  if (find(block).run != run) return LOAM_INVALID_BLOCK;  // another thread was first
  ++account_.large_given;
  account_.large_bytes -= run->bytes;
  release_run(run);
  return LOAM_OK;
}

// ---- lock and behaviour ------------------------------------------------------------------------

loam_status PrivateHeap::lock() {
  if (unsynchronized()) {
    Lock lock(mutex_);
    ++hold_.depth;
    return LOAM_OK;
  }
  Use use(*this);
  lock_inside();
  return LOAM_OK;
}

void PrivateHeap::lock_inside() {
  if (hold_.depth++ != 0) return;
  hold_.owner = this_thread();
  __atomic_store_n(&hold_.word, 1, __ATOMIC_RELAXED);
  stop_caches();
}

loam_status PrivateHeap::try_lock() {
  if (unsynchronized()) return lock();
  Lock lock(mutex_);
  if (hold_.owner != 0 && hold_.owner != this_thread()) return LOAM_BUSY;
  lock_inside();
  return LOAM_OK;
}

loam_status PrivateHeap::unlock() {
  Lock lock(mutex_);
  if (hold_.depth == 0 || (!unsynchronized() && hold_.owner != this_thread()))
    return LOAM_NOT_OWNER;
  if (--hold_.depth != 0 || unsynchronized()) return LOAM_OK;
  hold_.owner = 0;
  resume_caches();
  __atomic_store_n(&hold_.word, 0, __ATOMIC_RELAXED);
  os::wake_one(&hold_.word);
  return LOAM_OK;
}

loam_status PrivateHeap::set_mode(int mode) {
  if (mode == LOAM_MODE_LOW_FRAGMENTATION) {
    mode_.store(mode, std::memory_order_relaxed);
    return LOAM_OK;
  }
  if (mode != LOAM_MODE_STANDARD && mode != LOAM_MODE_LOOKASIDE) return LOAM_INVALID_ARGUMENT;
  if (this->mode() == LOAM_MODE_LOW_FRAGMENTATION) return LOAM_ONE_WAY;
  return mode == LOAM_MODE_LOOKASIDE ? LOAM_NOT_SUPPORTED : LOAM_OK;
}

void PrivateHeap::set_small_threshold(size_t bytes) {
  unsigned classes = 0;
  while (classes + 1 < kSizeClassCount && kSizeClasses[classes + 1].bytes <= bytes) ++classes;
  // Blocks that every call checks go through no cache.
  if (canary() || poisons()) classes = 0;
  Use use(*this);
  stop_caches();
  if (LOAM_UNLIKELY(caches_.closed)) classes = 0;
  asked_.threshold = bytes;
  cached_classes_.store(classes, std::memory_order_relaxed);
  for (HeapCache* cache : caches_.list) {
    for (unsigned c = classes + 1; c < kSizeClassCount; ++c) {
      retire_magazine(cache, c);
    }
  }
  resume_caches();
}

void PrivateHeap::reset_after_fork(uintptr_t survivor) {
  mutex_.reset_after_fork();
  inside_.store(0, std::memory_order_relaxed);
  // A thread on a fast path may have had a slot in its hands: its state says cached, and it is in
  // no magazine.
  for (const HeapCache* cache : caches_.list) {
    if (cache->owner == nullptr || cache->owner == thread_heaps()) continue;
    caches_.lost_slots += cache->owner->busy.load(std::memory_order_relaxed);
  }
  if (unsynchronized() || hold_.owner == 0 || hold_.owner == survivor) return;
  hold_.owner = 0;
  hold_.depth = 0;
  hold_.word = 0;
  resume_caches();
}

}  // namespace loam
