#include "heap/background_purge.h"

#include "os/os.h"
#include "pages/page_heap.h"
#include "small/small_heap.h"

namespace loam {

constinit BackgroundPurge background_purge;

void BackgroundPurge::start() {
  State expected = State::kIdle;
  // One thread starts it; allocations during the start come back here and find kStarting. acq_rel:
  // the new thread sees what this thread did, and so does the thread that starts it again in a
  // child
  if (!state_.compare_exchange_strong(expected, State::kStarting, std::memory_order_acq_rel))
    return;
  const bool started = os::start_thread(&run);
  // relaxed: readers only decide whether to call start()
  state_.store(started ? State::kRunning : State::kFailed, std::memory_order_relaxed);
}

void BackgroundPurge::run() {
  for (;;) {
    default_small_heap.tick();
    page_heap.tick();
    os::sleep_ms(page_heap.wants_ticks() ? kBusyMs : kIdleMs);
  }
}

}  // namespace loam
