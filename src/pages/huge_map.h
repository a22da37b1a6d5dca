// Blocks too large for regions, each in a mapping of its own: a table by address.
//
//   open addressing, linear probing, at most 3/4 full; the table itself is a mapping between guards that doubles
//
// Lock: own, below no other. Thread-safe. A block's mapping is made and removed outside the lock.
#pragma once

#include "map/records.h"
#include "os/mutex.h"

namespace loam {

class HugeMap {
 public:
  constexpr HugeMap() = default;

  struct Entry {
    uintptr_t address;  ///< 0 = empty place
    size_t mapped;      ///< bytes of the mapping
    size_t requested;
    uint64_t heap;  ///< 0 = the default heap, else the address of the private heap's record of it
    size_t before = 0;  ///< bytes of the mapping before the block, and behind `mapped`, that are
                        ///< its walls (hardening/walled_blocks.h);
    size_t behind = 0;  ///< a block without walls has none of either

    [[nodiscard]] bool has_walls() const { return behind != 0; }
    [[nodiscard]] uintptr_t begin() const { return address - before; }
    [[nodiscard]] size_t whole() const { return before + mapped + behind; }
  };

  /// A block with `extra` bytes behind those asked for. `alignment` is a power of two. *zero:
  /// whether it must read as zero, and then whether it does. `grows`: resize() will most likely
  /// follow. Null when refused.
  [[nodiscard]] void* allocate(size_t bytes, size_t alignment, uint64_t heap, bool* zero,
                               size_t extra = 0, bool grows = false);

  /// A large run that grows becomes a block here, as allocate() makes it, with what it holds, which
  /// is moved and not copied. Null, and nothing happened, when refused, or where a copy is better:
  /// the run is short, or mappings are kept. pre: the run is shorter
  [[nodiscard]] void* take_over(Span* run, size_t bytes, uint64_t heap, size_t extra = 0);
  /// Shorter runs are copied. Measured: both take as long (decision 58). 256 KiB
  static constexpr Pages kLeastMoved{64};

  /// Frees the block at `address`, whose mapping goes, or waits for another block if it may; false
  /// when there is none.
  [[nodiscard]] bool free(uintptr_t address, bool may_wait = true);

  /// Resizes, moving if that is allowed; null when refused, the block then unchanged. `zero`: what
  /// is behind the old mapping's end must read as zero, so nothing that was kept is taken for it.
  [[nodiscard]] void* resize(uintptr_t address, size_t bytes, bool in_place, size_t extra = 0,
                             bool zero = false);

  /// Enters a block with walls that somebody else has mapped. False when memory for the table is
  /// refused.
  [[nodiscard]] bool enter(const Entry& entry);
  /// Removes one: its mapping is the caller's. False when there is none at this address, or it has
  /// no walls.
  [[nodiscard]] bool take_walled(uintptr_t address, Entry* removed);
  /// It holds so many bytes now, of which so many were asked for: its wall behind changed by as
  /// much. pre: it has walls
  void change_walled(uintptr_t address, size_t mapped, size_t requested);
  /// The first block for which visit(entry) is true, address 0 when there is none. Under the lock:
  /// none goes meanwhile.
  template <class Visit>
  [[nodiscard]] Entry first_where(Visit visit) {
    Lock lock(mutex_);
    const size_t size = table_ == nullptr ? 0 : size_t{1} << bits_;
    for (size_t i = 0; i < size; ++i) {
      if (table_[i].address != 0 && visit(table_[i])) return table_[i];
    }
    return Entry{};
  }
  /// The block that covers the address, with its walls; for reports: address 0 also when the lock
  /// is held. O(blocks).
  [[nodiscard]] Entry covering(uintptr_t address);

  /// What is at exactly this address; address 0 in the result means nothing.
  [[nodiscard]] Entry find(uintptr_t address);

  /// The entry with the smallest address above this one; address 0 when there is none. So a walk
  /// meets each block that is there all the while once, whatever comes and goes. O(blocks).
  [[nodiscard]] Entry after(uintptr_t address);

  struct Totals {
    size_t blocks;
    size_t mapped_bytes;
    size_t requested_bytes;
    size_t peak_mapped_bytes;
    uint64_t allocations;
  };
  [[nodiscard]] Totals totals();
  [[nodiscard]] Mutex& mutex() { return mutex_; }
  [[nodiscard]] bool is_valid();

 private:
  friend struct CounterFields;
  Entry* locate(uintptr_t address);
  /// Has the table hold one entry more; false when memory for it is refused.
  [[nodiscard]] bool make_room() {
    return (table_ != nullptr && 4 * (count_ + 1) <= 3 * (size_t{1} << bits_)) || grow_table();
  }
  bool insert(const Entry& entry);
  void erase(Entry* entry);
  bool grow_table();
  [[nodiscard]] size_t home(uintptr_t address) const {
    // Fibonacci hashing: the high bits of the product spread page numbers that differ in low bits.
    return ((address >> kPageShift) * 0x9e3779b97f4a7c15u) >> (64 - bits_);
  }

  Mutex mutex_;
  Entry* table_ = nullptr;
  unsigned bits_ = 0;
  size_t count_ = 0;
  size_t mapped_bytes_ = 0;
  size_t requested_bytes_ = 0;
  size_t peak_mapped_bytes_ = 0;
  uint64_t allocations_ = 0;
};

/// The table that every heap of the process shares.
extern HugeMap huge_map;

}  // namespace loam
