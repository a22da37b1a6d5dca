// Counts how often threads collided on the heap's locks.
//
// The allocator's own counters are used where it has them: Loam counts the waits on each of its
// locks, and jemalloc on each of its mutexes. Otherwise the kernel's are used: a thread that waits
// for a lock sleeps in a futex, which is a voluntary context switch. Experiments subtract none of
// their own, because their threads only allocate between two barriers. Locks that only spin are not
// seen that way.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../../../include/loam/stats.h"
#include "allocator.h"
#include "system.h"

namespace lab {

class LockCounter {
 public:
  LockCounter()
      : loam_(find_function<LoamStats>("loam_stats")), mallctl_(find_function<Mallctl>("mallctl")) {
    if (loam_) mallctl_ = nullptr;
    uint64_t ignored = 0;
    if (mallctl_ && !read("stats.mutexes.ctl.num_wait", ignored)) mallctl_ = nullptr;
  }

  std::string_view source() const {
    return loam_      ? "Loam lock waits"
           : mallctl_ ? "jemalloc mutex waits"
                      : "voluntary context switches";
  }
  // Does the allocator count? Otherwise use the threads' own context switches.
  bool counts() const { return loam_ != nullptr || mallctl_ != nullptr; }

  // Collisions since the process began. pre: counts()
  uint64_t collisions() const {
    if (loam_) {
      struct loam_stats stats = {};
      stats.size = sizeof stats;
      return loam_(nullptr, &stats) == LOAM_OK ? stats.lock_contentions : 0;
    }
    uint64_t epoch = 1, sum = 0;
    mallctl_("epoch", nullptr, nullptr, &epoch, sizeof epoch);  // refreshes the statistics
    for (const char* name :
         {"large", "extent_avail", "extents_dirty", "extents_muzzy", "extents_retained",
          "decay_dirty", "decay_muzzy", "base", "tcache_list"}) {
      sum += of_all_arenas({"mutexes.", name, ".num_wait"});
    }
    unsigned bins = 0;
    size_t length = sizeof bins;
    mallctl_("arenas.nbins", &bins, &length, nullptr, 0);
    for (unsigned i = 0; i < bins; ++i) {
      char number[12];
      *std::to_chars(number, number + 11, i).ptr = '\0';
      sum += of_all_arenas({"bins.", number, ".mutex.num_wait"});
    }
    return sum;
  }

 private:
  using LoamStats = loam_status (*)(loam_heap*, struct loam_stats*);
  using Mallctl = int (*)(const char*, void*, size_t*, void*, size_t);

  bool read(const char* name, uint64_t& value) const {
    size_t length = sizeof value;
    return mallctl_(name, &value, &length, nullptr, 0) == 0;
  }
  uint64_t of_all_arenas(std::initializer_list<std::string_view> pieces) const {
    char name[96];
    char* at = name;
    for (const char c : std::string_view("stats.arenas.4096.")) *at++ = c;  // MALLCTL_ARENAS_ALL
    for (const auto piece : pieces) {
      for (const char c : piece) *at++ = c;
    }
    *at = '\0';
    uint64_t value = 0;
    return read(name, value) ? value : 0;
  }

  LoamStats loam_;
  Mallctl mallctl_;
};

// Voluntary context switches of the calling thread.
inline uint64_t thread_switches() {
  rusage u;
  getrusage(RUSAGE_THREAD, &u);
  return static_cast<uint64_t>(u.ru_nvcsw);
}

}  // namespace lab
