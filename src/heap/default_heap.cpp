#include "heap/default_heap.h"

#include <cstring>

#include "counters/snapshot.h"
#include "hardening/hardening.h"
#include "heap/heap.h"
#include "os/os.h"
#include "pages/huge_map.h"
#include "private/private_heap.h"
#include "small/partial_span.h"

namespace loam::default_heap {

namespace {

// Threads that lock the default heap take turns with this lock; it guards no data of the heap.
constinit Mutex turn;
constinit std::atomic<uintptr_t> turn_owner{0};
constinit unsigned turn_depth = 0;

void zero_tail(void* block, size_t from, size_t to) {
  if (from < to) memset(static_cast<char*>(block) + from, 0, to - from);
}

}  // namespace

void* allocate(size_t bytes, size_t alignment, bool zero, loam_status* why) {
  os::ErrnoGuard guard;
  void* block = nullptr;
  if (alignment > LOAM_ALIGNMENT) {
    if (bytes <= kLargestRequest - alignment) block = heap::allocate_aligned(alignment, bytes);
  } else {
    block = zero ? heap::allocate_zeroed(bytes) : heap::allocate(bytes);
  }
  if (block == nullptr) {
    *why = LOAM_OUT_OF_MEMORY;
    return nullptr;
  }
  // All usable bytes become zero, so that loam_zrealloc() can rely on the rest.
  if (zero) zero_tail(block, alignment > LOAM_ALIGNMENT ? 0 : bytes, heap::usable_size(block));
  return block;
}

loam_status check(const void* block, bool surely) {
  if (surely && !hardening.intact(block)) return LOAM_CORRUPT;
  if (surely ? is_live(block) : seems_live(block)) return LOAM_OK;
  return PrivateHeap::heap_of(block) != nullptr ? LOAM_WRONG_HEAP : LOAM_INVALID_BLOCK;
}

loam_status free(void* block) {
  const loam_status status = check(block, false);
  if (status == LOAM_OK) heap::free(block);
  return status;
}

loam_status try_resize(void* block, size_t bytes) {
  const loam_status status = check(block, false);
  if (status != LOAM_OK) return status;
  return bytes <= kLargestRequest && heap::try_resize(block, bytes) ? LOAM_OK : LOAM_NOT_IN_PLACE;
}

void* reallocate(void* block, size_t bytes, size_t alignment, bool zero, loam_status* why) {
  *why = check(block, false);
  if (*why != LOAM_OK) return nullptr;
  *why = LOAM_OUT_OF_MEMORY;
  if (bytes > kLargestRequest) return nullptr;
  os::ErrnoGuard guard;
  const size_t old = heap::requested_size(block);
  void* result;
  if (alignment <= LOAM_ALIGNMENT) {
    result = heap::reallocate(block, bytes == 0 ? 1 : bytes);
  } else if ((reinterpret_cast<uintptr_t>(block) & (alignment - 1)) == 0 &&
             heap::try_resize(block, bytes)) {
    result = block;
  } else {
    result = allocate(bytes, alignment, false, why);
    if (result != nullptr) {
      memcpy(result, block, old < bytes ? old : bytes);
      heap::free(block);
    }
  }
  if (result == nullptr) return nullptr;
  *why = LOAM_OK;
  if (zero) zero_tail(result, old < bytes ? old : bytes, heap::usable_size(result));
  return result;
}

// ---- lock --------------------------------------------------------------------------------------

loam_status lock() {
  // relaxed: only the calling thread can have stored its own number
  if (turn_owner.load(std::memory_order_relaxed) != this_thread()) {
    turn.lock();
    turn_owner.store(this_thread(), std::memory_order_relaxed);
  }
  ++turn_depth;
  return LOAM_OK;
}

loam_status try_lock() {
  if (turn_owner.load(std::memory_order_relaxed) != this_thread()) {
    if (!turn.try_lock()) return LOAM_BUSY;
    turn_owner.store(this_thread(), std::memory_order_relaxed);
  }
  ++turn_depth;
  return LOAM_OK;
}

loam_status unlock() {
  if (turn_owner.load(std::memory_order_relaxed) != this_thread()) return LOAM_NOT_OWNER;
  if (--turn_depth != 0) return LOAM_OK;
  turn_owner.store(0, std::memory_order_relaxed);
  turn.unlock();
  return LOAM_OK;
}

void reset_after_fork() {
  // relaxed: there is no other thread here. The forking thread keeps a lock that it holds. A lock
  // of another thread, or one that another thread was about to record, becomes free.
  if (turn_owner.load(std::memory_order_relaxed) == this_thread()) return;
  turn_owner.store(0, std::memory_order_relaxed);
  turn_depth = 0;
  turn.reset_after_fork();
}

// ---- walk --------------------------------------------------------------------------------------
//
// The walk goes by address: spans, then huge blocks. cursor: { where to look next, step in the span
// there, the last huge block, regions }. Step 0 is the span's region entry; then come the slots of
// one class (slot + 1), or the granules of a mixed span (granule + 1). Each piece of a partial span
// is a region: the pages between pieces belong to other runs.

namespace {

// True if a walk shows the run.
bool is_run(const Span* span) {
  return span != nullptr && span->heap != kPrivateHeap && holds_blocks(span->kind);
}

// Adjacent pages of a run: the whole run, or the part of a partial span around the address.
struct Piece {
  uintptr_t begin;
  uintptr_t end;
};
Piece piece_at(const Span* span, uintptr_t address) {
  const uintptr_t base = span_base(span);
  if (span->kind == SpanKind::kLarge) return {base, base + Pages(span->large.pages).bytes()};
  const uint32_t absent = absent_pages(span);
  // A record that changes meanwhile may hold any value, but the shift must stay below the word's
  // width.
  const unsigned page = static_cast<unsigned>((address - base) >> kPageShift) % kMaxSpanPages;
  const uint32_t before = absent & ((uint32_t{1} << page) - 1), behind = absent & ~before;
  const unsigned first = before == 0 ? 0 : highest_bit(before) + 1u;
  const unsigned end = behind == 0 ? span->page_count : lowest_bit(behind);
  return {base + Pages(first).bytes(), base + Pages(end).bytes()};
}

// Slots of a span that lie in a piece: from the first to before the last.
struct Slots {
  size_t first;
  size_t end;
};
Slots slots_in(const Span* span, const Piece& piece) {
  const SizeClassInfo& info = class_info(index_of(span->size_class));
  const uintptr_t base = span_base(span);
  const size_t first = (piece.begin - base + info.bytes - 1) / info.bytes,
               end = (piece.end - base) / info.bytes;
  return {first, end < info.slots ? end : info.slots};
}

// The first page at or after `address` where a run of the default heap, or a piece of one, begins;
// 0 if there is none.
uintptr_t next_run(uintptr_t address) {
  while (address >> kRegionShift < kDirectoryEntries) {
    const Region* region = region_at(address);
    if (region == nullptr) {
      address = ((address >> kRegionShift) + 1) << kRegionShift;
      continue;
    }
    const uint32_t page = Region::page_of(address).index;
    const Slab& slab = region->slabs[page / kPagesPerSlab];
    if (slab.state == SlabState::kUncommitted || slab.state == SlabState::kWhole) {
      address = ((address >> kSlabShift) + 1) << kSlabShift;
      continue;
    }
    const Span* span = span_at(address);
    if (is_run(span) && piece_at(span, address).begin == address) return address;
    address += kPageBytes;
  }
  return 0;
}

void describe(const Span* span, const Piece& piece, loam_walk_entry* entry) {
  const uintptr_t base = span_base(span);
  const unsigned first_page = static_cast<unsigned>((piece.begin - base) >> kPageShift);
  const unsigned pages = static_cast<unsigned>((piece.end - piece.begin) >> kPageShift);
  const uint32_t unbacked =
      span->unbacked_pages & static_cast<uint32_t>(bit_range(first_page, pages));
  entry->kind = LOAM_ENTRY_REGION;
  entry->bytes = piece.end - piece.begin;
  entry->uncommitted_bytes = Pages(count_bits(unbacked)).bytes();
  entry->committed_bytes = entry->bytes - entry->uncommitted_bytes;
  uintptr_t first = piece.begin, last = piece.end;
  if (is_cut_into_slots(span->kind)) {
    const size_t slot_bytes = class_info(index_of(span->size_class)).bytes;
    const Slots slots = slots_in(span, piece);
    first = base + slots.first * slot_bytes;
    last = base + slots.end * slot_bytes;
  }
  entry->first = reinterpret_cast<void*>(first);
  entry->last = reinterpret_cast<void*>(last);
  entry->overhead = entry->bytes - (last - first);
}

// Describes the slot of a span at a step and returns the next step; 0 at the span's end.
size_t describe_slot(const Span* span, const Piece& piece, size_t step, loam_walk_entry* entry) {
  const uintptr_t base = span_base(span);
  if (is_cut_into_slots(span->kind)) {
    const SizeClassInfo& info = class_info(index_of(span->size_class));
    const Slots slots = slots_in(span, piece);
    const size_t slot = step - 1 < slots.first ? slots.first : step - 1;
    if (slot >= slots.end) return 0;
    entry->address = reinterpret_cast<void*>(base + slot * info.bytes);
    entry->bytes = info.bytes;
    const uint64_t word = __atomic_load_n(&span->free_bits[slot / 64], __ATOMIC_RELAXED);
    const bool free = ((word >> (slot % 64)) & 1) != 0 || hardening.freed(entry->address);
    entry->kind = free ? LOAM_ENTRY_FREE : LOAM_ENTRY_SMALL;
    if (!free && hardening.owns(entry->address)) {
      entry->bytes = hardening.requested(entry->address);
      entry->overhead = info.bytes - entry->bytes;
    }
    return slot + 2;
  }
  MixedHeap& mixed = default_small_heap.mixed();
  uintptr_t at = base + (step - 1) * kGranuleBytes;
  if (at < piece.begin) at = piece.begin;
  const uintptr_t begin = at, end = piece.end;
  if (at >= end) return 0;
  entry->address = reinterpret_cast<void*>(at);
  entry->bytes = mixed.block_bytes(at);
  entry->kind = entry->bytes != 0 ? LOAM_ENTRY_SMALL : LOAM_ENTRY_FREE;
  if (entry->bytes == 0) {
    while (at < end && mixed.block_bytes(at) == 0) at += kGranuleBytes;
    entry->bytes = at - reinterpret_cast<uintptr_t>(entry->address);
  }
  return (begin - base + entry->bytes) / kGranuleBytes + 1;
}

// Describes the next block outside spans: mappings, then the hardened heap's blocks without bytes.
// *last: the address of the block before. False when there is none.
bool describe_huge(size_t* last, loam_walk_entry* entry) {
  const void* const before = reinterpret_cast<const void*>(*last);
  HugeMap::Entry huge{};
  if (!hardening.is_nothing(before)) {
    do {
      huge = huge_map.after(huge.address != 0 ? huge.address : *last);
    } while (huge.heap != 0);
  }
  if (huge.address != 0) {
    *last = huge.address;
    entry->kind = LOAM_ENTRY_HUGE;
    entry->bytes = huge.requested;
    entry->overhead = huge.mapped - huge.requested;
  } else {
    const void* const nothing =
        hardening.nothing_after(hardening.is_nothing(before) ? before : nullptr);
    if (nothing == nullptr) return false;
    *last = reinterpret_cast<uintptr_t>(nothing);
    entry->kind = LOAM_ENTRY_SMALL;
  }
  entry->address = reinterpret_cast<void*>(*last);
  return true;
}

// Sets the cursor behind an entry that came without one, from the entry's other fields. False when
// no such entry is possible.
bool restore_cursor(const loam_walk_entry& entry, size_t* cursor) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(entry.address);
  cursor[3] = entry.region;
  const Span* span = span_at(address);
  if (span == nullptr) {
    // A mapping of its own, or no block at all.
    cursor[2] = address;
    return huge_map.find(address).address != 0 || hardening.owns_nothing(entry.address);
  }
  const bool slots = is_cut_into_slots(span->kind) || span->kind == SpanKind::kMixed;
  if (span->heap == kPrivateHeap || (!slots && span->kind != SpanKind::kLarge)) return false;
  const size_t offset = address - span_base(span);
  const Piece piece = piece_at(span, address);
  cursor[0] = piece.begin;
  if (span->kind == SpanKind::kLarge) {
    cursor[0] = next_run(piece.end);
    return offset == 0;
  }
  if (entry.kind == LOAM_ENTRY_REGION) {
    cursor[1] = 1;
    return address == piece.begin;
  }
  // The step of the slot and the steps that it takes; a slot of a mixed span takes one for each
  // granule.
  const bool small = is_cut_into_slots(span->kind);
  const size_t unit = small ? class_info(index_of(span->size_class)).bytes : kGranuleBytes;
  const size_t taken = small ? 1 : entry.bytes / kGranuleBytes;
  cursor[1] = offset / unit + 1 + taken;
  return offset % unit == 0 && taken != 0;
}

}  // namespace

loam_status walk_next(loam_walk_entry* entry) {
  size_t cursor[4] = {};
  size_t region = 0;
  if (entry->address != nullptr) {
    memcpy(cursor, entry->cursor, sizeof cursor);
    region = entry->region;
    const bool none = (cursor[0] | cursor[1] | cursor[2] | cursor[3]) == 0;
    if (none && !restore_cursor(*entry, cursor)) return LOAM_CHANGED;
  } else {
    cursor[0] = next_run(1);
    cursor[3] = SIZE_MAX;  // no region yet
  }
  const size_t size = entry->size;
  *entry = loam_walk_entry{};
  entry->size = size;
  while (cursor[0] != 0) {
    const Span* span = span_at(cursor[0]);
    if (!is_run(span)) return LOAM_CHANGED;
    const Piece piece = piece_at(span, cursor[0]);
    if (piece.begin != cursor[0]) return LOAM_CHANGED;
    if (cursor[1] == 0) {
      region = ++cursor[3];
      entry->address = reinterpret_cast<void*>(cursor[0]);
      if (span->kind == SpanKind::kLarge) {
        entry->kind = hardening.freed(entry->address) ? LOAM_ENTRY_FREE : LOAM_ENTRY_LARGE;
        entry->bytes = span->large.requested;
        entry->overhead = Pages(span->large.pages).bytes() - entry->bytes;
        cursor[0] = next_run(piece.end);
      } else {
        describe(span, piece, entry);
        cursor[1] = 1;
      }
      break;
    }
    cursor[1] = describe_slot(span, piece, cursor[1], entry);
    if (cursor[1] != 0) break;
    cursor[0] = next_run(piece.end);
  }
  if (entry->kind == 0) {
    if (!describe_huge(&cursor[2], entry)) return LOAM_NO_MORE;
    region = ++cursor[3];
  }
  entry->region = region;
  memcpy(entry->cursor, cursor, sizeof cursor);
  return LOAM_OK;
}

void summary(loam_heap_summary* out) {
  Snapshot s;
  take_snapshot(&s, [out](unsigned, const ClassSnapshot& c) {
    out->blocks += c.live;
    out->spans += c.spans;
  });
  out->allocated = s.live_bytes();
  out->committed = s.used_bytes + s.live_huge_bytes + s.metadata_bytes - s.unbacked_bytes;
  out->reserved = s.reserved_bytes + s.live_huge_bytes + s.metadata_bytes;
  out->peak_committed = s.peak_used_bytes + s.metadata_bytes;
  if (out->peak_committed < out->committed) out->peak_committed = out->committed;
  out->cached = s.cached_bytes;
  out->free = s.span_free_bytes;
  out->records = s.metadata_bytes;
  out->spans += s.mixed_spans;
  out->large_blocks = s.huge_blocks;
  out->blocks += s.huge_blocks;
}

}  // namespace loam::default_heap
