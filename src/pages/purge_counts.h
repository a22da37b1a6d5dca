// Gives pages back to the system, and counts what that brought and took.
//
// Lock: the page heap's.
#pragma once

#include "os/charge.h"
#include "os/os.h"
#include "pages/page_stats.h"

namespace loam {

class PurgeCounts {
 public:
  /// Discards pages, timed. False, and counted, when the system refuses; otherwise the caller
  /// counts with add() those that held memory.
  [[nodiscard]] bool discard(void* address, Pages pages) {
    ++calls_;
    const uint64_t began = os::now_ns();  // two clock readings cost a twentieth of the call
    const bool done = os::discard(address, pages.bytes());
    ns_ += os::now_ns() - began;
    if (!done) refuse();
    return done;
  }
  void add(Pages gone) { pages_ += gone.count; }
  /// The system refused to take pages back, or to give some.
  void refuse() { ++refused_; }
  [[nodiscard]] uint64_t pages() const { return pages_; }

  void show(PageStats* out) const {
    out->purge_calls = calls_;
    out->purged_pages = pages_;
    out->purge_ns = ns_;
    out->refused_calls = refused_;
  }

 private:
  friend struct CounterFields;
  uint64_t calls_ = 0;
  uint64_t pages_ = 0;
  uint64_t ns_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace loam
