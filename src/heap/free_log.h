// Who freed what: the last kEntries frees of the process, for reports. A ring that threads write without a lock; a
// report reads it backwards, so it finds the last free of an address if that is recent enough.
//
// An entry that is being overwritten while a report reads it may lack its caller, never name another block's: the block
// is stored last (release) and taken away first.
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

class FreeLog {
 public:
  constexpr FreeLog() = default;

  /// Frees that are remembered. Chosen: as many as a quarantine of 1 MiB has of its smallest blocks; 2 MiB.
  static constexpr size_t kEntries = size_t{1} << 16;

  struct Free {
    const void* caller;  ///< null: not known
    uint32_t thread;
    size_t bytes;  ///< that were asked for
  };

  /// Once, before threads start; false when memory is refused.
  [[nodiscard]] bool start();
  [[nodiscard]] bool on() const { return ring_ != nullptr; }
  void add(const void* block, const Free& free);
  /// The last free of the block; false when none is remembered. O(kEntries).
  [[nodiscard]] bool find(const void* block, Free* out) const;

 private:
  struct Entry {
    std::atomic<const void*> block;
    std::atomic<const void*> caller;
    std::atomic<size_t> bytes;
    std::atomic<uint32_t> thread;
  };
  [[nodiscard]] uint64_t next();

  Entry* ring_ = nullptr;
  std::atomic<uint64_t> next_{0};
};

}  // namespace loam
