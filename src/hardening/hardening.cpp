#include "hardening/hardening.h"

#include <cstring>

#include "base/check.h"
#include "cache/cache_registry.h"
#include "cache/large_blocks.h"
#include "cache/resizing.h"
#include "hardening/canary.h"
#include "observers/detours.h"
#include "observers/sampler.h"
#include "os/fatal.h"
#include "os/os.h"
#include "os/random.h"
#include "pages/huge_map.h"

namespace loam {

constinit Hardening hardening;

namespace {

Shadow::State small_state(size_t bytes) {
  return static_cast<Shadow::State>(Shadow::kSmallest + bytes);
}
static_assert(Shadow::kSmallest + kLargestSmall < Shadow::kLarge,
              "a small block's size fits its state");

bool is_small(Shadow::State state) { return state < Shadow::kLarge; }

uintptr_t number_of(const void* block) { return reinterpret_cast<uintptr_t>(block); }

Span* large_span_at(const void* block) {
  Span* span = span_at(number_of(block));
  const bool begins =
      span != nullptr && span->kind == SpanKind::kLarge && span_base(span) == number_of(block);
  return begins ? span : nullptr;
}

// The system is asked once for each thread.
uint32_t this_thread_number() {
  ThreadCache* cache = current_cache;
  if (cache->state() != ThreadCache::State::kLive) return os::thread_number();
  if (cache->thread_number == 0) cache->thread_number = os::thread_number();
  return cache->thread_number;
}

// Takes a slot from the magazine if it is armed only for the detour. While calls are counted, every
// call takes the path that counts.
LOAM_INLINE void* take_slot(const PlainHeap& plain, unsigned size_class, size_t bytes) {
  if (LOAM_LIKELY(!sampler.on())) {
    if (void* block = current_cache->pop_armed(size_class)) return block;
  }
  return plain.allocate_small(size_class, bytes);
}

LOAM_INLINE void give_slot(const PlainHeap& plain, unsigned size_class, void* block) {
  if (LOAM_LIKELY(!sampler.on()) && LOAM_LIKELY(current_cache->push_armed(size_class, block)))
    return;
  plain.free_small(size_class, block);
}

}  // namespace

bool Hardening::start(unsigned features, size_t quarantine_bytes, bool checks,
                      const PlainHeap& plain) {
  if (cache_registry.totals().threads > 1) return false;
  const bool walls = (features & (kQuarantine | kGuards)) != 0;
  if ((features & (kQuarantine | kGuards | kSample)) != 0) {
    if (!walled_blocks.start(walls ? WalledBlocks::kMostLive : WalledBlocks::kMostSampled))
      return false;
    os::report_faults(&report_fault);
  }
  features_ = features;
  if (has(kSample)) {
    sample_guards();
    take_rare_detour(kGuarded);
  }
  if ((features & kAll) == 0 && !checks) return true;
  if (!shadow.on() && !shadow.start()) return false;
  if (has(kQuarantine) && !quarantine_.start(quarantine_bytes)) return false;
  if (has(kTrace) && !log_.start()) return false;
  if (has(kGuards))
    nothing_ = reinterpret_cast<uintptr_t>(os::reserve(kNothingBytes, os::granularity()));
  if (has(kCanary)) {
    start_canaries();
    canary_ = kCanaryBytes;
  }
  if (has(kRandom)) {
    random_source.start();
    choose_slots_at_random();
  }
  plain_ = plain;
  default_small_heap.keep_spans_pure();
  on_ = true;
  take_detour(kHardened);
  cache_registry.flush_current();  // its slots return to their spans, and its magazines are armed
  return true;
}

// ---- allocating ---------------------------------------------------------------------------------

void* Hardening::allocate(size_t bytes, size_t alignment, bool* zero) {
  if (bytes > kLargestRequest - (size_t{1} << 20)) return nullptr;
  const size_t padded = bytes + canary_;
  unsigned size_class = 0;
  if (alignment > 16) {
    size_class = class_for_aligned(padded, alignment);
  } else if (padded <= kLargestSmall) {
    size_class = class_for(padded);
  }
  return size_class == 0 ? allocate_large(bytes, alignment, zero)
                         : allocate_slot(size_class, bytes, alignment);
}

void* Hardening::allocate_small(unsigned size_class, size_t bytes) {
  if (canary_ != 0 || !has_own_spans(size_class)) {
    const size_t padded = bytes + canary_;
    bool zero = false;
    if (padded > kLargestSmall) return allocate_large(bytes, 16, &zero);
    size_class = class_for(padded);
  }
  return allocate_slot(size_class, bytes, 16);
}

LOAM_INLINE void* Hardening::allocate_slot(unsigned size_class, size_t bytes, size_t alignment) {
  if ((features_ & (kGuards | kSample | kRandom)) != 0) {
    if (LOAM_UNLIKELY(bytes == 0) && alignment <= 16 && nothing_ != 0) {
      if (void* block = allocate_nothing()) return block;
    }
    if (LOAM_UNLIKELY(has(kSample))) {
      if (void* block = allocate_sampled(size_class, bytes, alignment, {})) return block;
    }
    if (has(kRandom)) current_cache->mix(size_class);
  }
  void* block = take_slot(plain_, size_class, bytes);
  while (LOAM_UNLIKELY(block == nullptr) && walled_blocks.release_some())
    block = take_slot(plain_, size_class, bytes);
  if (alignment > 16 && LOAM_UNLIKELY((number_of(block) & (alignment - 1)) != 0)) {
    void* other = plain_.allocate_own_slot(size_class);
    plain_.free_small(static_cast<unsigned>(class_at(block)), block);
    block = other;
  }
  if (LOAM_UNLIKELY(block == nullptr)) return nullptr;
  // A block whose state cannot be stored is served all the same, as it would be without hardening.
  std::atomic<Shadow::State>* place = shadow.make(number_of(block));
  if (LOAM_UNLIKELY(place == nullptr)) return block;
  if (canary_ != 0) write_canary(block, bytes, class_info(size_class).bytes);
  // release: a thread that finds the state finds the canary; pairs with the acquire in
  // check_live_blocks_of()
  place->store(small_state(bytes), std::memory_order_release);
  return block;
}

void* Hardening::allocate_large(size_t bytes, size_t alignment, bool* zero) {
  if (walled_blocks.on() && (has(kQuarantine) || has(kGuards))) {
    const size_t aligned = alignment < 16 ? 16 : alignment;
    void* block =
        walled_blocks.allocate(bytes, canary_, aligned, WalledBlocks::wall_for(bytes), false);
    if (LOAM_LIKELY(block != nullptr)) {
      *zero = true;
      return block;
    }
  }
  // There are too many walled blocks, or the system refused their addresses: then only the canary
  // stands behind the block.
  void* block = plain_.allocate_pages(bytes, alignment, canary_, zero);
  while (LOAM_UNLIKELY(block == nullptr) && walled_blocks.release_some())
    block = plain_.allocate_pages(bytes, alignment, canary_, zero);
  if (block == nullptr) return nullptr;
  std::atomic<Shadow::State>* place = shadow.make(number_of(block));
  if (LOAM_UNLIKELY(place == nullptr)) return block;
  finish_large(block, place);
  return block;
}

// Sets the state and the canary of a block whose record is complete.
void Hardening::finish_large(void* block, std::atomic<Shadow::State>* place) {
  const Extent extent = measure(block, Shadow::kLarge);
  if (canary_ != 0) write_canary(block, extent.requested, extent.usable);
  place->store(Shadow::kLarge, std::memory_order_release);
}

// The next address without a known block. If some looks find none, a slot with a canary serves the
// request.
void* Hardening::allocate_nothing() {
  constexpr unsigned kLooks = 64;
  for (unsigned looks = 0; looks < kLooks; ++looks) {
    // relaxed: the state below decides which thread gets it
    const uintptr_t address =
        nothing_ + next_nothing_.fetch_add(16, std::memory_order_relaxed) % kNothingBytes;
    std::atomic<Shadow::State>* place = shadow.make(address);
    if (place == nullptr) return nullptr;
    Shadow::State state = place->load(std::memory_order_relaxed);
    // relaxed: the transfer of the pointer to other threads orders it
    if (!Shadow::is_live(state) &&
        place->compare_exchange_strong(state, small_state(0), std::memory_order_relaxed)) {
      return reinterpret_cast<void*>(address);
    }
  }
  return nullptr;
}

const void* Hardening::nothing_after(const void* block) const {
  if (nothing_ == 0) return nullptr;
  const size_t handed_out =
      next_nothing_.load(std::memory_order_relaxed);  // a walk sees what was there before it
  const size_t end = handed_out < kNothingBytes ? handed_out : kNothingBytes;
  for (size_t at = block == nullptr ? 0 : number_of(block) - nothing_ + 16; at < end; at += 16) {
    const void* const next = reinterpret_cast<const void*>(nothing_ + at);
    if (owns(next)) return next;
  }
  return nullptr;
}

void* Hardening::allocate_sampled(unsigned size_class, size_t bytes, size_t alignment,
                                  os::Caller caller) {
  if (LOAM_LIKELY(!current_cache->guard_is_due(size_class))) return nullptr;
  const size_t aligned = alignment < 16 ? 16 : alignment;
  // Every other block ends where its page ends: there an overflow faults. In the rest a write
  // before the block faults.
  const bool right = current_cache->draws().coin();
  void* const block = walled_blocks.allocate(bytes, 0, aligned, os::granularity(), right);
  if (block != nullptr) walled_blocks.note_callers(block, caller);
  return block;
}

Shadow::State Hardening::state_of(const void* block) {
  const Shadow::State state = shadow.state(block);
  if (LOAM_LIKELY(class_at(block) != 0) || Shadow::is_live(state)) return state;
  return huge_map.find(number_of(block)).has_walls() ? Shadow::kLarge : state;
}

Hardening::Extent Hardening::measure(const void* block, Shadow::State state) const {
  if (is_small(state)) {
    return {size_t{state} - Shadow::kSmallest,
            class_info(static_cast<unsigned>(class_at(block))).bytes};
  }
  if (state == Shadow::kLarge) {
    if (const Span* span = large_span_at(block))
      return {span->large.requested, Pages(span->large.pages).bytes()};
  }
  const HugeMap::Entry entry = huge_map.find(number_of(block));
  return {entry.requested, entry.mapped};
}

size_t Hardening::requested(const void* block) const {
  const Shadow::State state = state_of(block);
  return LOAM_LIKELY(is_small(state)) ? size_t{state} - Shadow::kSmallest
                                      : measure(block, state).requested;
}

// ---- freeing ------------------------------------------------------------------------------------

void Hardening::check_canary(void* block, const Extent& extent) const {
  if (canary_ == 0) return;
  const size_t broken = first_overwritten(block, extent.requested, extent.usable);
  if (LOAM_LIKELY(broken == extent.usable)) return;
  report_overflow(block, broken, extent.requested);
  write_canary(block, extent.requested, extent.usable);  // one report an overflow
}

bool Hardening::intact(const void* block) const {
  const Shadow::State state = state_of(block);
  if (canary_ == 0 || !Shadow::is_live(state) || is_nothing(block)) return true;
  const Extent extent = measure(block, state);
  return first_overwritten(block, extent.requested, extent.usable) == extent.usable;
}

void Hardening::report_size(const void* block, size_t said, size_t requested) {
  ReportLine what;
  what.add("free with a wrong size: ")
      .add_number(said)
      .add(" bytes for a block of ")
      .add_number(requested);
  report_misuse(what.text(), block);
}

// Two threads may free a block at once: one goes on, and the other sees that the block is freed.
LOAM_INLINE bool Hardening::mark_freed(std::atomic<Shadow::State>* place, Shadow::State state,
                                       const void* block) {
  if (os::is_single_threaded()) {
    place->store(Shadow::kFreed, std::memory_order_relaxed);
    return true;
  }
  // acq_rel: pairs with the exchange of the other thread
  if (LOAM_LIKELY(place->compare_exchange_strong(state, Shadow::kFreed, std::memory_order_acq_rel)))
    return true;
  report_misuse("double free", block);
  return false;
}

void Hardening::free(void* block, const void* caller, size_t said) {
  const unsigned size_class = static_cast<unsigned>(class_at(block));
  size_class != 0 ? free_known(size_class, block, caller, said) : free_large(block, caller, said);
}

LOAM_INLINE void Hardening::free_known(unsigned size_class, void* block, const void* caller,
                                       size_t said) {
  std::atomic<Shadow::State>* place = shadow.find(number_of(block));
  const Shadow::State state =
      place == nullptr ? Shadow::kUnknown : place->load(std::memory_order_relaxed);
  // A stale state may describe a block from before the pages changed their use: the map is right.
  if (LOAM_UNLIKELY(!Shadow::is_live(state) || !is_small(state)))
    return free_unknown(block, size_class, state);
  const Extent extent{size_t{state} - Shadow::kSmallest, class_info(size_class).bytes};
  if (LOAM_UNLIKELY(said != kNotSaid && said != extent.requested))
    report_size(block, said, extent.requested);
  check_canary(block, extent);
  if (LOAM_UNLIKELY(!mark_freed(place, state, block))) return;
  std::atomic_thread_fence(std::memory_order_release);  // as in resize_small()
  if ((features_ & (kTrace | kQuarantine)) != 0) {
    const uint32_t thread = this_thread_number();
    if (log_.on()) log_.add(block, {caller, thread, extent.requested});
    if (quarantine_.on() && LOAM_LIKELY(quarantine_.takes(extent.usable)))
      return hold_back(block, extent.usable, thread);
  }
  if (has(kZero)) memset(block, 0, extent.usable);
  give_slot(plain_, size_class, block);
}

void Hardening::free_small(unsigned size_class, void* block, const void* caller) {
  free_known(size_class, block, caller, kNotSaid);
}

void Hardening::free_large(void* block, const void* caller, size_t said) {
  if (const HugeMap::Entry entry = huge_map.find(number_of(block)); entry.has_walls()) {
    if (LOAM_UNLIKELY(said != kNotSaid && said != entry.requested))
      report_size(block, said, entry.requested);
    const uint32_t thread = this_thread_number();
    if (log_.on()) log_.add(block, {caller, thread, entry.requested});
    if (!walled_blocks.free(block, caller, thread))
      report_misuse("double free", block);  // another thread was faster
    return;
  }
  std::atomic<Shadow::State>* place = shadow.find(number_of(block));
  const Shadow::State state =
      place == nullptr ? Shadow::kUnknown : place->load(std::memory_order_relaxed);
  const bool nothing = is_nothing(block);
  if (!Shadow::is_live(state) || (is_small(state) && !nothing))
    return free_unknown(block, 0, state);
  const Extent extent = measure(block, state);
  if (LOAM_UNLIKELY(said != kNotSaid && said != extent.requested))
    report_size(block, said, extent.requested);
  if (!nothing) check_canary(block, extent);
  if (!mark_freed(place, state, block)) return;
  if (log_.on()) log_.add(block, {caller, this_thread_number(), extent.requested});
  if (nothing) return;
  if (has(kZero) && large_span_at(block) != nullptr) memset(block, 0, extent.usable);
  plain_.free_large(block);
}

void Hardening::free_unknown(void* block, unsigned size_class, Shadow::State state) {
  if (size_class != 0) {
    // The block is from before hardening began, or it is no block.
    if (!is_block_in_use(size_class, block, state == Shadow::kFreed)) return;
    return plain_.free_small(size_class, block);
  }
  // The state is stale if a private heap has the address.
  if (state == Shadow::kFreed && !plain_.is_private(block))
    return report_misuse("double free", block);
  plain_.free_large(block);
}

void Hardening::hold_back(void* block, size_t bytes, uint32_t thread) {
  poison(block, bytes);
  Quarantine::Entry out[Quarantine::kMostOut];
  for (bool pushed = false; !pushed;) {
    const unsigned count = quarantine_.exchange(thread, {block, bytes}, out, &pushed);
    for (unsigned i = 0; i < count; ++i) release(out[i]);
  }
}

void Hardening::release(const Quarantine::Entry& entry) {
  const size_t broken = first_unpoisoned(entry.block, entry.bytes);
  if (LOAM_UNLIKELY(broken != entry.bytes)) report_poison(entry.block, broken);
  // All its bytes are poison, so it need not be cleared as well.
  give_slot(plain_, static_cast<unsigned>(class_at(entry.block)), entry.block);
}

bool Hardening::quarantine_is_intact(bool report) {
  if (!quarantine_.on()) return true;
  Quarantine::Entry bad{};
  const bool whole = quarantine_.for_each([&bad](const Quarantine::Entry& entry) {
    if (first_unpoisoned(entry.block, entry.bytes) == entry.bytes) return true;
    bad = entry;
    return false;
  });
  // Outside the lock: a report may end the process, and handlers that run then may free blocks.
  if (!whole && report) report_poison(bad.block, first_unpoisoned(bad.block, bad.bytes));
  return whole;
}

// ---- at the end ---------------------------------------------------------------------------------

void Hardening::check_everything() {
  quarantine_is_intact(true);
  if (canary_ != 0 && !forked_) check_live_blocks();
  if (canary_ == 0 && !walled_blocks.on()) return;
  const auto broken_at = [](const HugeMap::Entry& entry) {
    return first_overwritten(reinterpret_cast<void*>(entry.address), entry.requested, entry.mapped);
  };
  const auto is_overrun = [&](const HugeMap::Entry& entry) {
    const bool is_known = canary_ != 0 && !forked_ &&
                          shadow.state(reinterpret_cast<void*>(entry.address)) == Shadow::kLarge;
    return entry.heap == 0 && (entry.has_walls() || is_known) && broken_at(entry) != entry.mapped;
  };
  // No block is freed while the table looks at it.
  for (HugeMap::Entry bad; (bad = huge_map.first_where(is_overrun)).address != 0;) {
    void* const block = reinterpret_cast<void*>(bad.address);
    report_overflow(block, broken_at(bad), bad.requested);
    write_canary(block, bad.requested, bad.mapped);
  }
}

// Goes by the states, whose table no other thread removes. If another thread frees or resizes a
// block during the check, the state after the check differs from the state before. Large runs may
// lose their pages meanwhile: they are checked only in a process of one thread.
void Hardening::check_live_blocks() {
  const bool alone = cache_registry.totals().threads <= 1;
  for (uintptr_t begin = 0; begin >> kRegionShift < kDirectoryEntries;) {
    const Region* region = region_at(begin);
    const size_t step = region == nullptr ? kRegionBytes : kSlabBytes;
    const auto state = region == nullptr
                           ? SlabState::kUncommitted
                           : region->slabs[Region::page_of(begin).index / kPagesPerSlab].state;
    if (state != SlabState::kUncommitted && state != SlabState::kWhole) {
      for (uintptr_t page = begin; page < begin + kSlabBytes; page += kPageBytes)
        check_live_blocks_of(page, alone);
    }
    begin += step;
  }
}

void Hardening::check_live_blocks_of(uintptr_t page, bool alone) {
  const unsigned size_class = static_cast<unsigned>(class_at(reinterpret_cast<void*>(page)));
  const uintptr_t end = size_class != 0 ? page + kPageBytes : alone ? page + 16 : page;
  for (uintptr_t address = page; address < end; address += 16) {
    const std::atomic<Shadow::State>* place = shadow.find(address);
    if (place == nullptr) return;
    const Shadow::State state = place->load(std::memory_order_acquire);  // before the check
    if (!Shadow::is_live(state) || is_small(state) != (size_class != 0)) continue;
    void* const block = reinterpret_cast<void*>(address);
    const Extent extent = measure(block, state);
    const size_t broken = first_overwritten(block, extent.requested, extent.usable);
    if (LOAM_LIKELY(broken == extent.usable)) continue;
    std::atomic_thread_fence(std::memory_order_acquire);  // orders the check before the load below
    if (place->load(std::memory_order_relaxed) == state && !intact(block))
      check_canary(block, extent);
  }
}

// ---- resizing -----------------------------------------------------------------------------------

bool Hardening::resize_small(void* block, const Extent& extent, size_t bytes, bool must_stay) {
  const size_t padded = bytes + canary_;
  if (bytes > kLargestSmall || padded > extent.usable || is_nothing(block)) return false;
  if (!must_stay && !worth_staying(extent.usable, padded)) return false;
  if (canary_ != 0) write_canary(block, bytes, extent.usable);
  shadow.find(number_of(block))->store(small_state(bytes), std::memory_order_relaxed);
  // The program's later writes come after the state; pairs with the fence in
  // check_live_blocks_of().
  std::atomic_thread_fence(std::memory_order_release);
  return true;
}

bool Hardening::resize_large(void* block, size_t bytes, bool in_place, void** moved) {
  if (bytes <= kLargestSmall || bytes > kLargestRequest - (size_t{1} << 20)) return false;
  if (const HugeMap::Entry entry = huge_map.find(number_of(block)); entry.has_walls()) {
    return walled_blocks.resize(entry, bytes, canary_);
  }
  std::atomic<Shadow::State>* place = shadow.find(number_of(block));
  const size_t whole = bytes + canary_;
  if (Span* span = large_span_at(block)) {
    *moved = block;
    if (whole > kMaxRun.bytes() || !page_heap.resize_large(span, Pages::covering(whole), bytes))
      *moved = nullptr;
  } else {
    // The old address's state changes first: another thread may get the address as soon as the
    // mapping has moved.
    place->store(Shadow::kFreed, std::memory_order_relaxed);
    *moved = huge_map.resize(number_of(block), bytes, in_place, canary_);
  }
  void* const now = *moved != nullptr ? *moved : block;
  place = shadow.make(number_of(now));
  if (place != nullptr) finish_large(now, place);
  return *moved != nullptr;
}

void* Hardening::reallocate(void* block, size_t bytes, const void* caller) {
  const Shadow::State state = state_of(block);
  const Extent extent = measure(block, state);
  if (!is_nothing(block)) check_canary(block, extent);
  void* moved = block;
  if (is_small(state) ? resize_small(block, extent, bytes, false)
                      : resize_large(block, bytes, false, &moved)) {
    return moved;
  }
  bool zero = false;
  moved = allocate(bytes, 16, &zero);
  if (moved == nullptr) return nullptr;
  memcpy(moved, block, extent.requested < bytes ? extent.requested : bytes);
  free(block, caller);
  return moved;
}

bool Hardening::try_resize(void* block, size_t bytes) {
  const Shadow::State state = state_of(block);
  const Extent extent = measure(block, state);
  if (!is_nothing(block)) check_canary(block, extent);
  void* moved;
  return is_small(state) ? resize_small(block, extent, bytes, true)
                         : resize_large(block, bytes, true, &moved);
}

// ---- fork, faults -------------------------------------------------------------------------------

void Hardening::lock() {
  quarantine_.lock();
  walled_blocks.lock();
  shadow.mutex().lock();
}

void Hardening::unlock() {
  shadow.mutex().unlock();
  walled_blocks.unlock();
  quarantine_.unlock();
}

void Hardening::reset_after_fork() {
  quarantine_.reset_after_fork();
  walled_blocks.reset_after_fork();
  shadow.reset_after_fork();
  forked_ = true;
  current_cache->thread_number = 0;
  if (!has(kRandom)) return;
  random_source.reset_after_fork();
  current_cache->draws().forget_random();
}

bool report_fault(const void* address) {
  const uintptr_t at = number_of(address);
  if (hardening.is_nothing(address)) {
    const void* const block = reinterpret_cast<void*>(at & ~uintptr_t{15});
    write_report(hardening.freed(block) ? "use after free of a block of 0 bytes"
                                        : "overflow: access to a block of 0 bytes",
                 address);
    return true;
  }
  if (const HugeMap::Entry live = huge_map.covering(at); live.has_walls()) {
    const bool before = at < live.address;
    write_report(before ? "underflow: access before a block" : "overflow: access behind a block",
                 address);
    return true;
  }
  if (walled_blocks.freed_at(at).begin == 0) return false;
  write_report("use after free", address);
  return true;
}

}  // namespace loam
