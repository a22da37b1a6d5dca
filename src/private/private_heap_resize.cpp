// A private heap's blocks change their size: in place if that is possible, otherwise by a move.
#include <cstring>

#include "cache/large_blocks.h"
#include "cache/resizing.h"
#include "hardening/canary.h"
#include "os/os.h"
#include "pages/huge_map.h"
#include "pages/page_heap.h"
#include "private/private_heap.h"

namespace loam {

namespace {

void clear(void* block, size_t from, size_t to) {
  if (from < to) memset(static_cast<char*>(block) + from, 0, to - from);
}

}  // namespace

// Records that a large block is at this address now, with its bytes, and takes `pages` bytes in
// all.
void PrivateHeap::note_resized(HeapRun* run, void* block, size_t bytes, size_t pages) {
  account_.large_bytes = account_.large_bytes - run->bytes + pages;
  run->base = reinterpret_cast<uintptr_t>(block);
  run->bytes = pages;
  run->requested = bytes;
  if (canary()) write_canary(block, bytes, pages);
}

void* PrivateHeap::resize_large(const Found& found, void* block, size_t bytes, bool in_place,
                                bool zero, loam_status* why) {
  HeapRun* run = found.run;
  const size_t old_pages = run->bytes;
  // Lower layers take 0 for a run without a block, and no mapping has 0 bytes.
  const size_t asked = bytes == 0 ? 1 : bytes;
  const size_t pages = Pages::covering(asked + canary_bytes()).bytes();
  const bool clears = zero_on_free() && bytes < found.bytes;
  // Before other threads get the pages. A run never refuses to shrink. A mapping may, and must then
  // have its content.
  if (clears && run->use == RunUse::kLarge) clear(block, bytes, end_of(found));
  Use use(*this);
  if (pages > old_pages && !charge(pages - old_pages)) {
    *why = LOAM_LIMIT_REACHED;
    return nullptr;
  }
  void* resized = nullptr;
  if (run->use == RunUse::kLarge) {
    const bool done = pages <= kMaxRun.bytes() &&
                      page_heap.resize_large(run->span, Pages(pages >> kPageShift), asked);
    if (done) resized = block;
  } else {
    resized = huge_map.resize(run->base, asked, in_place, canary_bytes(), zero);
    if (resized != nullptr && clears)
      clear(resized, bytes, pages < found.bytes ? pages : found.bytes);
  }
  if (resized == nullptr) {
    if (pages > old_pages) uncharge(pages - old_pages);
    *why = LOAM_NOT_IN_PLACE;
    return nullptr;
  }
  if (pages < old_pages) {
    uncharge(old_pages - pages);
    mixed_.refused_bytes = 0;
  }
  note_resized(run, resized, bytes, pages);
  *why = LOAM_OK;
  return resized;
}

// A run that grows moves to a mapping of its own without a copy. Null where that is not possible,
// and then nothing has changed. pre: bytes > found.usable
void* PrivateHeap::move_run(const Found& found, size_t bytes, bool zero) {
  HeapRun* const run = found.run;
  const size_t pages = Pages::covering(bytes + canary_bytes()).bytes(), old_pages = run->bytes;
  Use use(*this);
  if (!charge(pages - old_pages)) return nullptr;
  // Before the record belongs to another run, as where a run is released.
  set_run(run->span, nullptr);
  void* const moved =
      huge_map.take_over(run->span, bytes, reinterpret_cast<uintptr_t>(run), canary_bytes());
  if (moved == nullptr) {
    set_run(run->span, run);
    uncharge(pages - old_pages);
    return nullptr;
  }
  run->span = nullptr;
  run->use = RunUse::kHuge;
  if (zero) clear(moved, found.bytes, old_pages);  // the bytes behind read as zero
  note_resized(run, moved, bytes, pages);
  return moved;
}

// pre: the block has this alignment
void* PrivateHeap::resize_and_clear(const Found& found, void* block, size_t bytes, size_t alignment,
                                    bool zero, loam_status* why) {
  const bool was_huge = found.run->use == RunUse::kHuge;
  const bool must_stay = alignment > kPageBytes;  // a mapping that moves is aligned to pages
  void* const resized = resize_large(found, block, bytes, must_stay, zero, why);
  if (resized == nullptr || !zero) return resized;
  // A mapping grows by zero pages; other pages may hold old data.
  const size_t end = canary() ? bytes : found.run->bytes;
  const size_t old_end = round_up(found.usable, os::granularity());
  const size_t kept = bytes < found.bytes ? bytes : found.bytes;
  clear(resized, kept, was_huge && old_end < end ? old_end : end);
  return resized;
}

loam_status PrivateHeap::try_resize(void* block, size_t bytes) {
  if (bytes > kLargestRequest) return LOAM_NOT_IN_PLACE;
  Found found = find(block);
  if (found.status != LOAM_OK) return found.status;
  if (found.run->slots == 0) {
    loam_status why;
    static_cast<void>(resize_large(found, block, bytes, true, false, &why));
    return why;
  }
  if (bytes + canary_bytes() > found.usable) return LOAM_NOT_IN_PLACE;
  if (zero_on_free() && bytes < found.bytes) clear(block, bytes, end_of(found));
  if (canary() || recuts()) {
    Use use(*this);  // for a thread that validates the heap meanwhile, or cuts the span anew
    if (found.run->list == kReplacedRun) found = locate(block);
    if (canary()) write_canary(block, bytes, found.usable);
    store_state(found.state, found.run->exact, live_state(found.run->exact, bytes));
    return LOAM_OK;
  }
  store_state(found.state, found.run->exact, live_state(found.run->exact, bytes));
  return LOAM_OK;
}

void* PrivateHeap::reallocate(void* block, size_t bytes, size_t alignment, bool zero,
                              loam_status* why) {
  const Found found = find(block);
  *why = found.status;
  if (found.status != LOAM_OK) return nullptr;
  if (bytes > kLargestRequest) {
    *why = LOAM_OUT_OF_MEMORY;
    return nullptr;
  }
  const bool small = found.run->slots != 0;
  const bool aligned = (reinterpret_cast<uintptr_t>(block) & (alignment - 1)) == 0;
  const size_t kept = bytes < found.bytes ? bytes : found.bytes;
  void* moved = nullptr;
  const auto stay = [&] {
    *why = try_resize(block, bytes);
    if (*why != LOAM_OK) return false;
    if (zero) clear(block, kept, canary() ? bytes : found.usable);
    return true;
  };
  if (small) {
    const bool fits = bytes <= found.usable && worth_staying(found.usable, bytes + canary_bytes());
    if (aligned && fits && stay()) return block;
  } else if (bytes > kLargestSmall) {
    // As the default heap does: a long block that grows has a mapping of its own, and one that
    // becomes short has none, unless the maximum has no room for both places.
    const bool grows =
        found.run->use == RunUse::kLarge && bytes > found.usable && bytes > kMovesToMapping;
    if (grows && aligned && alignment <= kPageBytes) {
      if (void* resized = move_run(found, bytes, zero)) return resized;
    }
    const bool shortens =
        found.run->use == RunUse::kHuge && bytes < found.bytes && bytes <= kMovesToMapping;
    if ((grows || shortens) && bytes < room())
      moved = allocate_large(bytes, alignment, zero, why, grows);
    if (moved == nullptr && aligned) {
      if (void* resized = resize_and_clear(found, block, bytes, alignment, zero, why))
        return resized;
    }
  }
  if (moved == nullptr) moved = allocate(bytes, alignment, zero, why);
  if (moved == nullptr) {
    // A block that shrinks in a full heap keeps its place, whatever the waste.
    if (!aligned || bytes + canary_bytes() > found.usable) return nullptr;
    if (!small) return resize_and_clear(found, block, bytes, alignment, zero, why);
    return stay() ? block : nullptr;
  }
  memcpy(moved, block, kept);
  const loam_status freed = free(block);
  LOAM_ASSERT(freed == LOAM_OK);
  static_cast<void>(freed);
  *why = LOAM_OK;
  return moved;
}

}  // namespace loam
