// What a thread gives back while the heap's use falls (decision 125).
#include "cache/cache_registry.h"
#include "cache/thread_cache.h"
#include "os/os.h"

namespace loam {

namespace {

// The fewest bytes of a thread between two looks at a fall: at its end each block may free a page.
constexpr size_t kLeastFallStep = size_t{64} << 10;
// A heap of fewer bytes gives nothing back for a fall.
constexpr size_t kSmallHeap = size_t{4} << 20;

}  // namespace

void ThreadCache::attend_parked() {
  os::ErrnoGuard guard;
  page_heap.tick_unless_busy();
}

// The thread freed much more than it took. If that left free memory inside of spans, there may be
// no call afterwards that gives it back, and each cached block keeps its page.
void ThreadCache::look_at_fall() {
  const size_t threads = cache_registry.threads_hint() | 1;
  fallen_ = 0;
  fall_step_ = kFallStep;
  if (page_heap.hints().used_bytes() < kSmallHeap) return;
  const SmallHeap::Fall fall = default_small_heap.look_at_fall();
  const size_t share = fall.used / kFallShare;
  const size_t most = 2 * share < kFallFloor ? kFallFloor : 2 * share;
  fall_step_ = (share < kFallStep ? kFallStep : share) / threads;
  if (fall_step_ < kLeastFallStep) fall_step_ = kLeastFallStep;
  // Others may take what this thread frees: then use does not fall.
  const bool falls = fall.used + fall_step_ / 2 < used_before_;
  used_before_ = fall.used;
  const size_t whole = page_heap.hints().returned_bytes();
  const size_t returned = whole < fall.came_back ? fall.came_back : whole;
  const size_t cached = falls ? process_room.held() : 0;
  const bool is_held = fall.bytes + cached <= returned;
  page_heap.hints().set_held_in_spans(is_held ? fall.bytes : 0);
  // What others took again says nothing of this thread, until it took again itself.
  if (fall.bytes + cached <= most || (is_held && comes_back_)) return;
  if (share < kFallStep) fall_step_ = kLeastFallStep;
  shorten_magazines(most / threads);
  if (fall.bytes <= most || is_held) return;
  default_small_heap.give_back_fall();
  page_heap.tick();
}

// Returns all blocks. Until the thread takes again, its magazines have so few slots that their
// blocks keep pages of `bytes` bytes at most; each may lie in a page of its own.
void ThreadCache::shorten_magazines(size_t bytes) {
  const unsigned end = split_classes.end();
  unsigned classes = 1;
  for (unsigned c = 1; c < end; ++c) classes += tuning_[c].capacity != 0;
  const size_t slots = bytes / kPageBytes / classes;
  runs_.flush();
  for (unsigned c = 1; c < end; ++c) {
    Tuning& t = tuning_[c];
    if (t.capacity == 0) continue;
    const size_t block_bytes = class_info(c).bytes;
    if (c == kMixedClass || slots < magazine_policy::initial_capacity(block_bytes)) {
      // Fewer slots than the first ones are none: who frees few blocks of a class meets no lock.
      retire_magazine(c);
      continue;
    }
    const Magazine m = magazine(c);
    if (m.head != m.base) evict(c, static_cast<unsigned>(m.head - m.base), SmallHeap::Wait::kNo);
    if (slots < t.capacity) {
      const unsigned capacity = static_cast<unsigned>(slots);
      const size_t less = (t.capacity - capacity) * block_bytes;
      if (resize(c, capacity)) give_room_back(less);
    }
  }
  // The next free of each class may be a sampled block's.
  arm_all();
  is_short_ = kRefillsToGrow;
}

}  // namespace loam
