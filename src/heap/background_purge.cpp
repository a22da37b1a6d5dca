#include "heap/background_purge.h"

#include "os/os.h"
#include "pages/page_heap.h"
#include "small/small_heap.h"

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
  for (;;) {
    default_small_heap.tick();
    page_heap.tick();
    os::sleep_ms(page_heap.hints().wants_ticks() ? kBusyMs : kIdleMs);
  }
}

}  // namespace loam
