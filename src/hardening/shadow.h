// What the hardened heap knows of every block of malloc(), by address and out of reach of
// overflows: two bytes for each 16 of address space, touched only where blocks begin.
//
//   address --> tables[address >> 30] --> state[(address mod 1 GiB) / 16]
//
//   kUnknown          no block that the hardened heap made ever began here
//   kFreed            freed: in the quarantine, or free for the next request
//   kLarge            a live block of whole pages: its record knows the size
//                     (one with walls has none: its addresses would take a page here)
//   2 + bytes         a live small block of so many bytes, as they were asked for
//
// A state changes by a compare-and-swap where two threads may meet (two frees of one block), so a
// double free is found exactly and at once. kFreed stays until the next block begins there,
// whatever happens to the memory meanwhile. A table is 128 MiB of address space; its touched part
// costs at most an eighth of the heap. Thread-safe.
#pragma once

#include <atomic>

#include "base/units.h"
#include "os/mutex.h"

namespace loam {

class Shadow {
 public:
  constexpr Shadow() = default;

  using State = uint16_t;
  static constexpr State kUnknown = 0;
  static constexpr State kFreed = 1;
  static constexpr State kSmallest = 2;
  static constexpr State kLarge = 0xffff;

  /// Call once, before threads start; false when the system refuses address space.
  [[nodiscard]] bool start();
  [[nodiscard]] bool on() const { return tables_ != nullptr; }

  /// The address of a block's state; null when there is none (no state was ever stored near, or the
  /// address is misaligned or wild). Any value is answered.
  [[nodiscard]] LOAM_INLINE std::atomic<State>* find(uintptr_t address) const {
    const uintptr_t number = address >> kRegionShift;
    if (LOAM_UNLIKELY(number >= kTables || tables_ == nullptr || address % (1u << kGranule) != 0))
      return nullptr;
    // acquire: pairs with the release in make()
    std::atomic<State>* table = tables_[number].load(std::memory_order_acquire);
    return LOAM_LIKELY(table != nullptr) ? &table[(address >> kGranule) % kEntries] : nullptr;
  }
  /// The same, but makes the table if need be; null when the system refuses memory. pre: a block
  /// begins at `address`
  [[nodiscard]] LOAM_INLINE std::atomic<State>* make(uintptr_t address) {
    std::atomic<State>* place = find(address);
    return LOAM_LIKELY(place != nullptr) ? place : make_table(address);
  }

  [[nodiscard]] State state(const void* block) const {
    const std::atomic<State>* place = find(reinterpret_cast<uintptr_t>(block));
    // relaxed: a live block's state was stored before its pointer was passed on, and that transfer
    // orders the two
    return place == nullptr ? kUnknown : place->load(std::memory_order_relaxed);
  }
  [[nodiscard]] static bool is_live(State state) { return state >= kSmallest; }

  void reset_after_fork() { mutex_.reset_after_fork(); }
  [[nodiscard]] Mutex& mutex() { return mutex_; }

 private:
  static constexpr unsigned kGranule = 4;
  static constexpr size_t kEntries = size_t{1} << (kRegionShift - kGranule);
  static constexpr size_t kTables = size_t{1} << (kAddressBits - kRegionShift);

  [[nodiscard]] LOAM_COLD std::atomic<State>* make_table(uintptr_t address);

  Mutex mutex_;  // guards the making of a table
  std::atomic<std::atomic<State>*>* tables_ = nullptr;
};

extern Shadow shadow;

}  // namespace loam
