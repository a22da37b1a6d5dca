// A private heap's blocks change their size: where they stand if that is possible, else by a move.
#include <cstring>

#include "heap/heap.h"
#include "heap/private_heap.h"
#include "pages/huge_map.h"
#include "pages/page_heap.h"

namespace loam {

namespace {

// As heap::reallocate(): staying costs the slack, moving a copy.
bool stays(size_t usable, size_t bytes) {
  return bytes + 64 >= usable || bytes >= usable - usable / 4;
}

void clear(void* block, size_t from, size_t to) {
  if (from < to) memset(static_cast<char*>(block) + from, 0, to - from);
}

}  // namespace

loam_status PrivateHeap::resize_large(const Found& found, void* block, size_t bytes) {
  HeapRun* run = found.run;
  const size_t old_pages = run->bytes;
  // What lies below takes 0 for a run that is nobody's block, and no mapping has 0 bytes.
  const size_t asked = bytes == 0 ? 1 : bytes;
  const size_t pages = Pages::covering(asked + canary_bytes()).bytes();
  const bool clears = zero_on_free() && bytes < found.bytes;
  // Before others get the pages. A run never refuses to shrink; a mapping may, and must have its
  // content then.
  if (clears && run->use == RunUse::kLarge) clear(block, bytes, end_of(found));
  Use use(*this);
  if (pages > old_pages && !charge(pages - old_pages)) return LOAM_LIMIT_REACHED;
  bool done = false;
  if (run->use == RunUse::kLarge) {
    done = pages <= kMaxRun.bytes() &&
           page_heap.resize_large(run->span, Pages(pages >> kPageShift), asked);
  } else {
    done = huge_map.resize(run->base, asked, true, canary_bytes()) != nullptr;
    if (done && clears) clear(block, bytes, pages < found.bytes ? pages : found.bytes);
  }
  if (!done) {
    if (pages > old_pages) uncharge(pages - old_pages);
    return LOAM_NOT_IN_PLACE;
  }
  if (pages < old_pages) uncharge(old_pages - pages);
  large_bytes_ = large_bytes_ - old_pages + pages;
  run->bytes = pages;
  run->requested = bytes;
  if (canary()) guard(block, bytes, pages);
  return LOAM_OK;
}

loam_status PrivateHeap::try_resize(void* block, size_t bytes) {
  if (bytes > kLargestRequest) return LOAM_NOT_IN_PLACE;
  const Found found = find(block);
  if (found.status != LOAM_OK) return found.status;
  if (found.run->slots == 0) return resize_large(found, block, bytes);
  if (bytes + canary_bytes() > found.usable) return LOAM_NOT_IN_PLACE;
  if (zero_on_free() && bytes < found.bytes) clear(block, bytes, end_of(found));
  if (canary()) {
    Use use(*this);  // for who validates the heap meanwhile
    guard(block, bytes, found.usable);
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
  if (aligned && (small ? bytes <= found.usable && stays(found.usable, bytes + canary_bytes())
                        : bytes > kLargestSmall)) {
    const bool was_huge = found.run->use == RunUse::kHuge;
    if (try_resize(block, bytes) == LOAM_OK) {
      // A mapping grows by zero pages; other pages may have been somebody's.
      const size_t end =
          small || (was_huge && bytes > found.usable) ? found.usable : found.run->bytes;
      if (zero) clear(block, kept, canary() ? bytes : end);
      return block;
    }
  }
  void* moved = allocate(bytes, alignment, zero, why);
  if (moved == nullptr) return nullptr;
  memcpy(moved, block, kept);
  const loam_status freed = free(block);
  LOAM_ASSERT(freed == LOAM_OK);
  static_cast<void>(freed);
  return moved;
}

}  // namespace loam
