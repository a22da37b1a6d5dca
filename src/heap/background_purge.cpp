#include "heap/background_purge.h"

#include "heap/silence.h"
#include "os/os.h"
#include "pages/page_heap.h"

namespace loam {

constinit BackgroundPurge background_purge;

void BackgroundPurge::start() {
  State expected = State::kIdle;
  // One thread starts it; allocations during the start come back here and find kStarted. acq_rel:
  // the new thread sees what this thread did, and so does the thread that starts it again in a
  // child
  if (!state_.compare_exchange_strong(expected, State::kStarted, std::memory_order_acq_rel)) return;
  static_cast<void>(os::start_thread(&run));
}

void BackgroundPurge::run() {
  uint64_t settled_ms = 0;
  for (;;) {
    uint64_t next = heap::kNoMoreLooks;
    // Nothing came since the last look if nobody made a step of the policy.
    if (page_heap.hints().wants_ticks() && page_heap.hints().looked_ms() != settled_ms) {
      next = heap::settle({[](void*) { return true; }, nullptr});
      if (next == heap::kNoMoreLooks) settled_ms = page_heap.hints().looked_ms();
    }
    // So the thread notices within a second after the last call that the heap is silent.
    os::sleep_ms(static_cast<unsigned>(next < PurgePolicy::kSoonMs ? next : PurgePolicy::kSoonMs));
  }
}

}  // namespace loam
