// The state of the pretended system. Only fake.cpp (the calls of os.h) and fake_control.cpp (the
// handles of fake.h) include this.
//
// Lock: state.mutex, for every member.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "fake_system/fake.h"

namespace loam::os::fake {

// Far from the addresses of programs, libraries, stacks and sanitizers' shadows.
inline constexpr uintptr_t kFirstAddress = uintptr_t{1} << 44;

/// A set of addresses as disjoint, never adjacent ranges.
class Ranges {
 public:
  void add(uintptr_t begin, uintptr_t end) {
    remove(begin, end);
    total_ += end - begin;
    auto after = map_.lower_bound(begin);
    if (after != map_.end() && after->first == end) {
      end = after->second;
      after = map_.erase(after);
    }
    if (after != map_.begin() && std::prev(after)->second == begin) {
      std::prev(after)->second = end;
    } else {
      map_[begin] = end;
    }
  }

  void remove(uintptr_t begin, uintptr_t end) {
    auto it = map_.upper_bound(begin);
    if (it != map_.begin()) --it;
    while (it != map_.end() && it->first < end) {
      const uintptr_t b = it->first, e = it->second;
      if (e <= begin) {
        ++it;
        continue;
      }
      total_ -= std::min(e, end) - std::max(b, begin);
      it = map_.erase(it);
      if (b < begin) map_[b] = begin;
      if (e > end) it = map_.emplace(end, e).first;
    }
  }

  [[nodiscard]] bool covers(uintptr_t begin, uintptr_t end) const {
    auto it = map_.upper_bound(begin);
    return it != map_.begin() && std::prev(it)->second >= end;
  }

  [[nodiscard]] bool meets(uintptr_t begin, uintptr_t end) const {
    auto it = map_.lower_bound(end);
    return it != map_.begin() && std::prev(it)->second > begin;
  }

  /// How much of [begin, end) is in the set.
  [[nodiscard]] size_t overlap(uintptr_t begin, uintptr_t end) const {
    size_t sum = 0;
    auto it = map_.upper_bound(begin);
    if (it != map_.begin()) --it;
    for (; it != map_.end() && it->first < end; ++it) {
      if (it->second > begin) sum += std::min(it->second, end) - std::max(it->first, begin);
    }
    return sum;
  }

  /// The parts of [begin, end) that are in the set.
  [[nodiscard]] std::vector<std::pair<uintptr_t, uintptr_t>> within(uintptr_t begin,
                                                                    uintptr_t end) const {
    std::vector<std::pair<uintptr_t, uintptr_t>> found;
    for (const auto& [from, to] : map_) {
      if (from < end && to > begin) found.emplace_back(std::max(from, begin), std::min(to, end));
    }
    return found;
  }

  [[nodiscard]] size_t total() const { return total_; }
  [[nodiscard]] const std::map<uintptr_t, uintptr_t>& ranges() const { return map_; }

 private:
  std::map<uintptr_t, uintptr_t> map_;
  size_t total_ = 0;
};

/// Refuses calls number `skip` + 1 .. `skip` + `count` from now.
struct Plan {
  uint64_t skip = 0;
  uint64_t count = 0;

  bool refuses() {
    if (skip != 0) {
      --skip;
      return false;
    }
    if (count == 0) return false;
    if (count != kForever) --count;
    return true;
  }
};

struct Settings {
  size_t granularity = 4096;
  size_t limit = SIZE_MAX;
  size_t metadata_before = 0;  // reserved before reset()
  uintptr_t placed = 0;        // the test's choice for the next reservation; 0 = the system's
  bool reuse = false;
  uint64_t clock_ns = uint64_t{3600} * 1'000'000'000;
  unsigned running_threads = 1;
  std::map<std::string, std::string> options;
  Plan plans[kCalls];
  Plan any;
  uint64_t calls[kCalls] = {};
  uint64_t refusals[kCalls] = {};
  uint64_t fallible = 0;
  std::vector<Record> log;
  std::string errors;
  Ranges reserved;
  Ranges released;
  Ranges committed;
  Ranges resident;  // whole pages of the system
  Ranges huge;      // where huge pages were requested
  Ranges written;   // bytes
  ForkHooks fork_hooks{};
  bool has_thread_exit_key = false;
  void (*thread_body)() = nullptr;  // the body passed to start_thread(); it does not run
  uint64_t slept_ms = 0;
  std::vector<Probed> probed;
};

struct State : Settings {
  std::mutex mutex;
  std::atomic<uint64_t> waits{0};  // counted without the lock, because any thread may wait
  uintptr_t next = kFirstAddress;
  Ranges metadata;  // survives reset(), because the map's tables are in it
};

// It is not destroyed at exit, because threads may still end after static destructors ran.
extern State& state;

using Guard = std::lock_guard<std::mutex>;

/// Ends the process: the caller broke a rule of os.h.
[[noreturn]] void breach(const char* what, uintptr_t address, size_t bytes);

/// That [address, address + bytes) lies in `ranges`.
void check_covered(const Ranges& ranges, const char* what, uintptr_t address, size_t bytes);

}  // namespace loam::os::fake
