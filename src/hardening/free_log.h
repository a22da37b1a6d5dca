// Who freed what: the last kEntries frees of the process, for reports. A ring that threads write
// without a lock; a report reads it backwards, so it finds the last free of an address if that is
// recent enough.
//
// An entry that is being overwritten while a report reads it may lack its caller, never name
// another block's: the block is stored last (release) and taken away first.
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

class FreeLog {
 public:
  constexpr FreeLog() = default;

  /// Frees that are remembered. Chosen: more than a quarantine of 1 MiB has of blocks of 64 bytes,
  /// and few enough to stay in a processor's cache beside it: 384 KiB.
  static constexpr size_t kEntries = size_t{1} << 14;

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
    std::atomic<uint64_t> thread_and_bytes;  // 24 bits, which hold any thread's number, above 40
  };
  static constexpr unsigned kBytesBits = 40;
  [[nodiscard]] uint64_t next();

  Entry* ring_ = nullptr;
  std::atomic<uint64_t> next_{0};
};

}  // namespace loam
