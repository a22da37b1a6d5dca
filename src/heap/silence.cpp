#include "heap/silence.h"

#include <atomic>

#include "map/metadata.h"
#include "os/os.h"
#include "pages/huge_map.h"
#include "pages/page_heap.h"
#include "private/heap_registry.h"
#include "small/remote_pool.h"
#include "small/small_heap.h"

namespace loam::heap {

namespace {

constexpr uint64_t kNsPerMs = 1'000'000;

// The calling thread holds a lock only where a handler of a signal interrupted the heap.
bool is_inside() {
  return page_heap.is_any_locked() || default_small_heap.is_any_locked() ||
         huge_map.mutex().is_locked() || remote_pool.mutex().is_locked() ||
         metadata.mutex().is_locked() || heap_registry.mutex().is_locked();
}

// One thread at a time; the others find nothing to do afterwards.
constinit std::atomic<bool> is_settling{false};

uint64_t settle_alone(const GoOn& go_on) {
  const PageHeap::Silence silence = page_heap.look_at_silence();
  if (silence.left_ms != 0) return silence.left_ms;
  const bool is_held = silence.held > PurgePolicy::kFallFloor;
  if (!is_held) {
    static_cast<void>(default_small_heap.compact(&go_on));
    page_heap.hints().set_held_in_spans(0);
    heap_registry.give_back_held(go_on);
  }
  page_heap.give_back_beyond(is_held ? silence.held : Pages(0), go_on);
  if (is_held) return PurgePolicy::kHoldMs;
  static_cast<void>(page_heap.purge_records());
  static_cast<void>(metadata.purge(SIZE_MAX));
  return kNoMoreLooks;
}

}  // namespace

uint64_t settle(const GoOn& go_on) {
  os::ErrnoGuard guard;
  if (is_inside() || is_settling.exchange(true, std::memory_order_acquire))
    return PurgePolicy::kSilenceMs;
  const uint64_t next = settle_alone(go_on);
  is_settling.store(false, std::memory_order_release);
  return next;
}

}  // namespace loam::heap

using namespace loam;

bool loam_much_waits(void) { return page_heap.much_waits(); }

uint64_t loam_until_silence(void) {
  const uint64_t since = os::now_coarse_ms() - page_heap.hints().looked_ms();
  return since < PurgePolicy::kSilenceMs ? (PurgePolicy::kSilenceMs - since) * heap::kNsPerMs : 0;
}

uint64_t loam_settle(bool (*go_on)(void*), void* context) {
  // Another thread may have been faster.
  if (!page_heap.much_waits()) return UINT64_MAX;
  const uint64_t ms = heap::settle({go_on, context});
  return ms == heap::kNoMoreLooks ? UINT64_MAX : ms * heap::kNsPerMs;
}

uint64_t loam_now(void) { return os::now_ns(); }
