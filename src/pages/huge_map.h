// A table, by address, of the blocks that are too large for regions. Each has a mapping of its own.
//
//   open addressing, linear probing, at most 3/4 full; the table is a mapping between guards, and
//   doubles when full
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
    size_t before = 0;  ///< bytes of walls before the block, and `behind` for those after `mapped`
                        ///< (hardening/walled_blocks.h);
    size_t behind = 0;  ///< both are 0 for a block without walls

    [[nodiscard]] bool has_walls() const { return behind != 0; }
    [[nodiscard]] uintptr_t begin() const { return address - before; }
    [[nodiscard]] size_t whole() const { return before + mapped + behind; }
  };

  /// Makes a block with `extra` bytes behind the requested ones. `alignment` is a power of two.
  /// *zero says whether the block must read as zero; on return, whether it does. `grows`: a
  /// resize() will most likely follow. Null when the system refuses.
  [[nodiscard]] void* allocate(size_t bytes, size_t alignment, uint64_t heap, bool* zero,
                               size_t extra = 0, bool grows = false);

  /// Makes a large run that grows into a block of this table, like one of allocate(). Its content
  /// is moved and not copied. Null, without any change, when the system refuses, or where a copy is
  /// better because the run is short or mappings are kept. pre: the run is shorter than the block
  [[nodiscard]] void* take_over(Span* run, size_t bytes, uint64_t heap, size_t extra = 0);
  /// Shorter runs are copied. Measured: at this length, moving and copying take as long (decision
  /// 54). 256 KiB
  static constexpr Pages kLeastMoved{64};

  /// Frees the block at `address`. Its mapping is released, or is kept for another block if
  /// `may_wait` allows it. False when there is no such block.
  [[nodiscard]] bool free(uintptr_t address, bool may_wait = true);

  /// Resizes the block, and moves it if that is allowed. Null when the system refuses; the block is
  /// then unchanged. `zero`: memory behind the old mapping's end must read as zero, so no kept
  /// mapping is used for it.
  [[nodiscard]] void* resize(uintptr_t address, size_t bytes, bool in_place, size_t extra = 0,
                             bool zero = false);

  /// Enters a block with walls that the caller has mapped. False when the system refuses memory for
  /// the table.
  [[nodiscard]] bool enter(const Entry& entry);
  /// Removes a block with walls; its mapping is the caller's. False when there is no block at this
  /// address, or it has no walls.
  [[nodiscard]] bool take_walled(uintptr_t address, Entry* removed);
  /// The block holds `mapped` bytes now, of which `requested` were requested. Its wall behind
  /// changes by the same amount. pre: the block has walls
  void change_walled(uintptr_t address, size_t mapped, size_t requested);
  /// The first block for which visit(entry) is true; address 0 when there is none. It runs under
  /// the lock, so no block is removed meanwhile.
  template <class Visit>
  [[nodiscard]] Entry first_where(Visit visit) {
    Lock lock(mutex_);
    const size_t size = table_ == nullptr ? 0 : size_t{1} << bits_;
    for (size_t i = 0; i < size; ++i) {
      if (table_[i].address != 0 && visit(table_[i])) return table_[i];
    }
    return Entry{};
  }
  /// The block that covers the address with its memory or its walls. For reports: address 0 also
  /// when another thread holds the lock. O(blocks).
  [[nodiscard]] Entry covering(uintptr_t address);

  /// The block at exactly this address; address 0 when there is none.
  [[nodiscard]] Entry find(uintptr_t address);

  /// The entry with the smallest address above this one; address 0 when there is none. So a walk
  /// meets each block that stays throughout exactly once, even if other blocks come and go.
  /// O(blocks).
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
  /// Makes room in the table for one more entry. False when the system refuses memory for it.
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
