#include "heap/hardening.h"

#include <cstring>

#include "base/check.h"
#include "cache/cache_registry.h"
#include "heap/canary.h"
#include "heap/heap.h"
#include "heap/plain.h"
#include "heap/private_heap.h"
#include "os/fatal.h"
#include "os/os.h"
#include "os/random.h"
#include "pages/huge_map.h"

namespace loam {

constinit Hardening hardening;

namespace {

Shadow::State small_state(size_t bytes) { return static_cast<Shadow::State>(Shadow::kSmallest + bytes); }
static_assert(Shadow::kSmallest + kLargestSmall < Shadow::kLarge, "a small block's size fits its state");

bool is_small(Shadow::State state) { return state < Shadow::kLarge; }

uintptr_t number_of(const void* block) { return reinterpret_cast<uintptr_t>(block); }

Span* large_span_at(const void* block) {
  Span* span = span_at(number_of(block));
  const bool begins = span != nullptr && span->kind == SpanKind::kLarge && span_base(span) == number_of(block);
  return begins ? span : nullptr;
}

// Asked of the system once a thread.
uint32_t this_thread_number() {
  ThreadCache* cache = current_cache;
  if (cache->state() != ThreadCache::State::kLive) return os::thread_number();
  if (cache->thread_number == 0) cache->thread_number = os::thread_number();
  return cache->thread_number;
}

}  // namespace

bool Hardening::start(unsigned features, size_t quarantine_bytes) {
  if (cache_registry.totals().threads > 1) return false;
  if (!shadow.on() && !shadow.start()) return false;
  if ((features & kQuarantine) != 0 && !quarantine_.start(quarantine_bytes)) return false;
  if ((features & kTrace) != 0 && !log_.start()) return false;
  features_ = features;
  if (has(kCanary)) {
    start_canaries();
    canary_ = kCanaryBytes;
  }
  if (has(kGuards)) guard_ = os::granularity();
  if (has(kRandom)) {
    random_source.start();
    choose_slots_at_random();
  }
  default_small_heap.keep_spans_pure();
  on_ = true;
  take_detour(kHardened);
  cache_registry.flush_current();  // what it held goes home, and its magazines are armed
  return true;
}

// ---- allocating ---------------------------------------------------------------------------------

// What a large block has behind the bytes asked for: canary, the rest of its last page, guard page.
size_t Hardening::behind(size_t bytes) const {
  return guard_ == 0 ? canary_ : round_up(bytes + canary_, guard_) + guard_ - bytes;
}

void* Hardening::allocate(size_t bytes, size_t alignment, bool* zero) {
  if (bytes > kLargestRequest - (size_t{1} << 20)) return nullptr;
  const size_t padded = bytes + canary_;
  unsigned size_class = 0;
  if (alignment > 16) {
    size_class = class_for_aligned(padded, alignment);
  } else if (padded <= kLargestSmall) {
    size_class = class_for(padded);
  }
  if (size_class == 0) return allocate_large(bytes, alignment, zero);
  if (has(kRandom)) current_cache->mix(size_class);
  void* block = heap::plain::allocate_small(size_class, bytes);
  if (LOAM_UNLIKELY((number_of(block) & (alignment - 1)) != 0)) {
    void* other = heap::plain::allocate_own_slot(size_class);
    heap::plain::free_small(static_cast<unsigned>(class_at(block)), block);
    block = other;
  }
  if (LOAM_UNLIKELY(block == nullptr)) return nullptr;
  // A block that no state can be noted of is served all the same, and is as it would be without hardening.
  std::atomic<Shadow::State>* place = shadow.make(number_of(block));
  if (LOAM_UNLIKELY(place == nullptr)) return block;
  if (canary_ != 0) write_canary(block, bytes, kSizeClasses[size_class].bytes);
  place->store(small_state(bytes), std::memory_order_relaxed);
  return block;
}

void* Hardening::allocate_large(size_t bytes, size_t alignment, bool* zero) {
  if (alignment < guard_) alignment = guard_;
  void* block = heap::plain::allocate_pages(bytes, alignment, behind(bytes), zero);
  if (block == nullptr) return nullptr;
  std::atomic<Shadow::State>* place = shadow.make(number_of(block));
  if (LOAM_UNLIKELY(place == nullptr)) return block;
  finish_large(block, place);
  return block;
}

// Guard and canary of a block whose record is as it should be.
void Hardening::finish_large(void* block, std::atomic<Shadow::State>* place) {
  place->store(Shadow::kLarge, std::memory_order_relaxed);
  Extent extent = measure(block, Shadow::kLarge);
  // Refused where the process has too many mappings: then the canary alone stands behind the block.
  if (guard_ != 0 && os::forbid(static_cast<char*>(block) + extent.usable - guard_, guard_)) {
    place->store(Shadow::kLargeGuarded, std::memory_order_relaxed);
    extent.usable -= guard_;
  }
  if (canary_ != 0) write_canary(block, extent.requested, extent.usable);
}

Hardening::Extent Hardening::measure(const void* block, Shadow::State state) const {
  if (is_small(state)) {
    return {size_t{state} - Shadow::kSmallest, class_info(static_cast<unsigned>(class_at(block))).bytes, 0};
  }
  const size_t guard = state == Shadow::kLargeGuarded ? guard_ : 0;
  if (const Span* span = large_span_at(block)) {
    return {span->large.requested, Pages(span->large.pages).bytes() - guard, guard};
  }
  const HugeMap::Entry entry = huge_map.find(number_of(block));
  return {entry.requested, entry.address == 0 ? 0 : entry.mapped - guard, guard};
}

size_t Hardening::requested(const void* block) const { return measure(block, shadow.state(block)).requested; }

// ---- freeing ------------------------------------------------------------------------------------

void Hardening::check_canary(void* block, const Extent& extent) const {
  if (canary_ == 0) return;
  const size_t broken = first_overwritten(block, extent.requested, extent.usable);
  if (LOAM_LIKELY(broken == extent.usable)) return;
  ReportLine what;
  what.add("overflow: byte ").add_number(broken).add(" of a block of ").add_number(extent.requested);
  report_misuse(what.add(" bytes was overwritten").text(), block);
  write_canary(block, extent.requested, extent.usable);  // one report an overflow
}

bool Hardening::intact(const void* block) const {
  const Shadow::State state = shadow.state(block);
  if (canary_ == 0 || !Shadow::is_live(state)) return true;
  const Extent extent = measure(block, state);
  return first_overwritten(block, extent.requested, extent.usable) == extent.usable;
}

void Hardening::free(void* block, const void* caller, size_t said) {
  std::atomic<Shadow::State>* place = shadow.find(number_of(block));
  Shadow::State state = place == nullptr ? Shadow::kUnknown : place->load(std::memory_order_relaxed);
  const unsigned size_class = static_cast<unsigned>(class_at(block));
  // A stale state may say what stood here before the pages changed hands: the map knows better.
  if (!Shadow::is_live(state) || (is_small(state) != (size_class != 0))) return free_unknown(block, size_class, state);
  const Extent extent = measure(block, state);
  if (LOAM_UNLIKELY(said != kNotSaid && said != extent.requested)) {
    ReportLine what;
    what.add("free with a wrong size: ").add_number(said).add(" bytes for a block of ").add_number(extent.requested);
    report_misuse(what.text(), block);
  }
  check_canary(block, extent);
  // acq_rel: of two threads that free the block one goes on, and the other sees why not
  if (LOAM_UNLIKELY(!place->compare_exchange_strong(state, Shadow::kFreed, std::memory_order_acq_rel))) {
    return report_misuse("double free", block);
  }
  if (log_.on()) log_.add(block, caller, this_thread_number());
  const bool huge = size_class == 0 && large_span_at(block) == nullptr;
  if (quarantine_.on() && !huge && quarantine_.takes(extent.usable)) return hold_back(block, extent.usable);
  if (has(kZero) && !huge) memset(block, 0, extent.usable);
  give_back(block, extent);
}

void Hardening::free_unknown(void* block, unsigned size_class, Shadow::State state) {
  if (size_class != 0) {
    // From before hardening began, or no block at all.
    if (!ThreadCache::is_block_in_use(size_class, block, state == Shadow::kFreed)) return;
    return heap::plain::free_small(size_class, block);
  }
  const Span* span = large_span_at(block);
  if (state == Shadow::kFreed && span != nullptr && span->heap != kPrivateHeap) {
    return report_misuse("double free", block);  // it is in the quarantine
  }
  heap::plain::free_large(block);
}

void Hardening::hold_back(void* block, size_t bytes) {
  poison(block, bytes);
  Quarantine::Entry out[Quarantine::kMostOut];
  do {
    while (const unsigned count = quarantine_.make_room(bytes, out)) {
      for (unsigned i = 0; i < count; ++i) release(out[i]);
    }
  } while (!quarantine_.push({block, bytes}));
}

void Hardening::release(const Quarantine::Entry& entry) {
  const size_t broken = first_unpoisoned(entry.block, entry.bytes);
  if (LOAM_UNLIKELY(broken != entry.bytes)) report_poison(entry.block, broken);
  if (has(kZero)) memset(entry.block, 0, entry.bytes);
  const Span* span = large_span_at(entry.block);
  const size_t guard = span == nullptr ? 0 : Pages(span->large.pages).bytes() - entry.bytes;
  give_back(entry.block, {0, entry.bytes, guard});
}

void Hardening::give_back(void* block, const Extent& extent) {
  const unsigned size_class = static_cast<unsigned>(class_at(block));
  if (LOAM_LIKELY(size_class != 0)) return heap::plain::free_small(size_class, block);
  if (extent.guard != 0 && !os::permit(static_cast<char*>(block) + extent.usable, extent.guard)) {
    return;  // its pages cannot be used again: better lost than handed out
  }
  heap::plain::free_large(block);
}

bool Hardening::quarantine_is_intact(bool report) {
  if (!quarantine_.on()) return true;
  Quarantine::Entry bad{};
  const bool whole = quarantine_.for_each([&bad](const Quarantine::Entry& entry) {
    if (first_unpoisoned(entry.block, entry.bytes) == entry.bytes) return true;
    bad = entry;
    return false;
  });
  // Outside the lock: a report may end the process, and what runs then may free.
  if (!whole && report) report_poison(bad.block, first_unpoisoned(bad.block, bad.bytes));
  return whole;
}

// ---- resizing -----------------------------------------------------------------------------------

bool Hardening::resize_small(void* block, const Extent& extent, size_t bytes, bool must_stay) {
  const size_t padded = bytes + canary_;
  if (bytes > kLargestSmall || padded > extent.usable) return false;
  if (!must_stay && !heap::plain::worth_staying(extent.usable, padded)) return false;
  if (canary_ != 0) write_canary(block, bytes, extent.usable);
  shadow.find(number_of(block))->store(small_state(bytes), std::memory_order_relaxed);
  return true;
}

bool Hardening::resize_large(void* block, const Extent& extent, size_t bytes, bool in_place, void** moved) {
  if (bytes <= kLargestSmall || bytes > kLargestRequest - (size_t{1} << 20)) return false;
  char* const guard = static_cast<char*>(block) + extent.usable;
  if (extent.guard != 0 && !os::permit(guard, extent.guard)) return false;
  std::atomic<Shadow::State>* place = shadow.find(number_of(block));
  const size_t whole = bytes + behind(bytes);
  if (Span* span = large_span_at(block)) {
    *moved = block;
    if (whole > kMaxRun.bytes() || !page_heap.resize_large(span, Pages::covering(whole), bytes)) *moved = nullptr;
  } else {
    // Its state goes first: another thread may be given the old address as soon as the mapping has moved.
    place->store(Shadow::kFreed, std::memory_order_relaxed);
    *moved = huge_map.resize(number_of(block), bytes, in_place, behind(bytes));
  }
  void* const now = *moved != nullptr ? *moved : block;
  place = shadow.make(number_of(now));
  if (place != nullptr) finish_large(now, place);
  return *moved != nullptr;
}

void* Hardening::reallocate(void* block, size_t bytes, const void* caller) {
  const Shadow::State state = shadow.state(block);
  const Extent extent = measure(block, state);
  check_canary(block, extent);
  void* moved = block;
  if (is_small(state) ? resize_small(block, extent, bytes, false) : resize_large(block, extent, bytes, false, &moved)) {
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
  const Shadow::State state = shadow.state(block);
  const Extent extent = measure(block, state);
  check_canary(block, extent);
  void* moved;
  return is_small(state) ? resize_small(block, extent, bytes, true) : resize_large(block, extent, bytes, true, &moved);
}

// ---- fork, reports ------------------------------------------------------------------------------

void Hardening::lock() {
  quarantine_.mutex().lock();
  shadow.mutex().lock();
}

void Hardening::unlock() {
  shadow.mutex().unlock();
  quarantine_.mutex().unlock();
}

void Hardening::reset_after_fork() {
  quarantine_.mutex().reset_after_fork();
  shadow.reset_after_fork();
  current_cache->thread_number = 0;
  if (has(kRandom)) random_source.reset_after_fork();
}

namespace {

void add_name(ReportLine& line, const char* name) {
  for (; *name != '\0'; ++name) {
    const bool printable = *name >= ' ' && *name <= '~';
    line.add(printable ? name : "?", 1);
  }
}

// The slot's start for an address in a small block, else the address.
uintptr_t add_place(ReportLine& line, uintptr_t address) {
  const Span* span = span_at(address);
  // What waits empty had a block there: whose it was says what is wrong.
  if (span == nullptr || !(holds_blocks(span->kind) || span->kind == SpanKind::kEmpty)) return address;
  uintptr_t base = span_base(span);
  size_t slot_bytes = 0;
  const char* heap = "default";
  if (span->heap == kPrivateHeap) {
    const HeapRun* run = private_run_at(reinterpret_cast<void*>(address));
    if (run == nullptr) return address;
    slot_bytes = run->use == RunUse::kSpan ? run->slot_bytes : 0;
    heap = run->heap->name()[0] != '\0' ? run->heap->name() : "private";
  } else if (is_cut_into_slots(span->kind) || span->kind == SpanKind::kEmpty) {
    slot_bytes = class_info(index_of(span->size_class)).bytes;
  }
  if (slot_bytes != 0) base += (address - base) / slot_bytes * slot_bytes;
  if (slot_bytes == 0 && (span->kind != SpanKind::kLarge)) base = address;
  if (base != address) line.add(", ").add_number(address - base).add(" bytes into the block at ").add_hex(base);
  if (slot_bytes != 0) {
    line.add(", class ").add_number(slot_bytes);
  } else if (span->kind == SpanKind::kLarge) {
    line.add(", large block of ").add_number(span->large.requested).add(" bytes");
  }
  line.add(", heap ");
  add_name(line, heap);
  return base;
}

}  // namespace

void describe_for_report(ReportLine& line, const void* address) {
  const uintptr_t block = add_place(line, number_of(address));
  line.add(", thread ").add_number(os::thread_number());
  FreeLog::Free last{};
  if (hardening.owns(reinterpret_cast<void*>(block))) return;  // that free would be an earlier block's
  if (!hardening.log().find(reinterpret_cast<void*>(block), &last)) return;
  line.add("; freed by thread ").add_number(last.thread);
  char where[128];
  if (last.caller != nullptr && os::describe_code(last.caller, where, sizeof where)) line.add(" at ").add(where);
}

}  // namespace loam
