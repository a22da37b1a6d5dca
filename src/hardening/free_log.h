// The last kEntries frees of the process with their callers, for reports. Threads write the ring
// without a lock; a report reads it backwards, so it finds the last free of an address if that is
// recent enough.
//
// An entry that is overwritten while a report reads it may lack its caller, but never names another
// block's caller: the block is cleared first and stored last (release).
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

class FreeLog {
 public:
  constexpr FreeLog() = default;

  /// Number of recorded frees. Chosen: more than a quarantine of 1 MiB holds of 64-byte blocks, and
  /// few enough to stay in a processor's cache beside it: 384 KiB.
  static constexpr size_t kEntries = size_t{1} << 14;

  struct Free {
    const void* caller;  ///< null: not known
    uint32_t thread;
    size_t bytes;  ///< that the program requested
  };

  /// Call once, before threads start; false when the system refuses memory.
  [[nodiscard]] bool start();
  [[nodiscard]] bool on() const { return ring_ != nullptr; }
  void add(const void* block, const Free& free);
  /// The last recorded free of the block; false when there is none. O(kEntries).
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
