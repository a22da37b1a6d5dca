// The hardened default heap (LOAM_HARDEN, LOAM_CHECK_FREE=full): exact knowledge of every block,
// and on top of it canaries, a quarantine, zeroing, random slots, guard pages and a log of frees,
// as they were asked for.
//
//   malloc --> detour --> Hardening::allocate() --> PlainHeap::allocate_*  state noted, canary written
//   free   --> detour --> Hardening::free()     --> quarantine --> PlainHeap::free_*  state, canary, poison checked
//
// With guards or a quarantine, blocks above the largest class are walled_blocks' instead: between
// inaccessible pages, and held by their addresses when they are freed. With guards, a block of no
// bytes is an address where nothing is.
//
// While it is off, no path knows of it but by the detour that sampling has as well (detours.h).
// What it finds goes to report_misuse(): one line, then the end, or with LOAM_ON_CORRUPTION=report
// the program goes on. Thread-safe. docs/hardening.md says what is caught and what it costs.
#pragma once

#include "hardening/free_log.h"
#include "hardening/plain_heap.h"
#include "hardening/quarantine.h"
#include "hardening/shadow.h"
#include "hardening/walled_blocks.h"

namespace loam {

class Hardening {
 public:
  constexpr Hardening() = default;

  enum Feature : unsigned {
    kCanary = 1u << 0,
    kQuarantine = 1u << 1,
    kZero = 1u << 2,
    kRandom = 1u << 3,
    kGuards = 1u << 4,
    kTrace = 1u << 5,
    kSample = 1u << 6,
  };
  /// What LOAM_HARDEN=all means: a sample beside it would find nothing more.
  static constexpr unsigned kAll = (1u << 6) - 1;
  /// Chosen: what `quarantine` alone means. More finds later uses, and costs as much more memory.
  static constexpr size_t kQuarantineBytes = size_t{1} << 20;
  static constexpr size_t kMostQuarantineBytes = size_t{1} << 36;
  static constexpr size_t kNotSaid = SIZE_MAX;

  /// Once, before threads start. False when memory is refused, or other threads run already: then
  /// all stays off. `checks`: every block is known exactly, even where no feature needs that.
  /// `plain`: what all of it stands on.
  [[nodiscard]] bool start(unsigned features, size_t quarantine_bytes, bool checks,
                           const PlainHeap& plain);
  [[nodiscard]] LOAM_INLINE bool on() const { return LOAM_UNLIKELY(on_); }
  [[nodiscard]] bool has(Feature feature) const { return (features_ & feature) != 0; }

  /// pre: on(); alignment is a power of two. *zero (large blocks): the block reads as zero.
  [[nodiscard]] void* allocate(size_t bytes, size_t alignment, bool* zero);
  /// The same at the heap's own alignment; `size_class`: the one for so many bytes. pre: on()
  [[nodiscard]] void* allocate_small(unsigned size_class, size_t bytes);
  /// free() of a block of which the map knows the class. pre: on(), it is not 0, block is at a
  /// multiple of 16
  void free_small(unsigned size_class, void* block, const void* caller);
  /// `caller`: for the log. `said`: the size that the program believes the block to have. pre:
  /// on(), block != null
  void free(void* block, const void* caller, size_t said = kNotSaid);

  /// Whether a live block that allocate() made begins there: the calls below need that.
  [[nodiscard]] bool owns(const void* block) const {
    return on_ && Shadow::is_live(state_of(block));
  }
  [[nodiscard]] bool is_nothing(const void* block) const {
    return reinterpret_cast<uintptr_t>(block) - nothing_ < kNothingBytes && nothing_ != 0;
  }
  /// The next live block without bytes behind this one, for walks; null: the first. Null when there
  /// is none.
  [[nodiscard]] const void* nothing_after(const void* block) const;
  /// Such a block lies where nothing is: it has no bytes.
  [[nodiscard]] bool owns_nothing(const void* block) const {
    return is_nothing(block) && owns(block);
  }
  /// Whether what begins there was freed and not handed out again.
  [[nodiscard]] bool freed(const void* block) const {
    return on_ && state_of(block) == Shadow::kFreed;
  }
  [[nodiscard]] void* reallocate(void* block, size_t bytes, const void* caller);
  [[nodiscard]] bool try_resize(void* block, size_t bytes);
  /// Bytes that were asked for, which is also what may be used.
  [[nodiscard]] size_t requested(const void* block) const;
  /// The canary is whole.
  [[nodiscard]] bool intact(const void* block) const;

  /// A block between guards, where the thread's next one shall be such (LOAM_HARDEN=sample); null:
  /// it is another's turn.
  [[nodiscard]] void* allocate_sampled(size_t bytes, size_t alignment);

  /// The poison of every quarantined block is whole; `report`: what is not is reported.
  bool quarantine_is_intact(bool report);
  /// At the program's end: reports what the quarantine and the canaries of live blocks say. Other
  /// threads may run.
  void check_everything();

  void lock() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void unlock() LOAM_NO_THREAD_SAFETY_ANALYSIS;
  void reset_after_fork();

  [[nodiscard]] const FreeLog& log() const { return log_; }

 private:
  struct Extent {
    size_t requested;
    size_t usable;  ///< canary included
  };
  // The shadow's, and of a block with walls kLarge.
  [[nodiscard]] static Shadow::State state_of(const void* block);
  [[nodiscard]] Extent measure(const void* block, Shadow::State state) const;
  [[nodiscard]] void* allocate_large(size_t bytes, size_t alignment, bool* zero);
  [[nodiscard]] void* allocate_nothing();
  void finish_large(void* block, std::atomic<Shadow::State>* place);
  [[nodiscard]] bool resize_large(void* block, size_t bytes, bool in_place, void** moved);
  [[nodiscard]] bool resize_small(void* block, const Extent& extent, size_t bytes, bool must_stay);
  void free_unknown(void* block, unsigned size_class, Shadow::State state);
  void check_canary(void* block, const Extent& extent) const;
  void free_known(unsigned size_class, void* block, const void* caller, size_t said);
  void free_large(void* block, const void* caller, size_t said);
  [[nodiscard]] void* allocate_slot(unsigned size_class, size_t bytes, size_t alignment);
  [[nodiscard]] bool mark_freed(std::atomic<Shadow::State>* place, Shadow::State state,
                                const void* block);
  LOAM_COLD static void report_size(const void* block, size_t said, size_t requested);
  void check_live_blocks();
  void check_live_blocks_of(uintptr_t page, bool alone);
  void hold_back(void* block, size_t bytes, uint32_t thread);
  void release(const Quarantine::Entry& entry);

  // Addresses that blocks of no bytes have. Chosen: four million such blocks; the address space
  // costs nothing. 64 MiB
  static constexpr size_t kNothingBytes = size_t{64} << 20;
  friend bool report_fault(const void* address);

  bool on_ = false;
  bool forked_ =
      false;  // other threads were in the middle of calls: a state may be here without its canary
  unsigned features_ = 0;
  size_t canary_ = 0;  // bytes behind a block at least
  uintptr_t nothing_ = 0;
  std::atomic<size_t> next_nothing_{0};
  PlainHeap plain_{};  // as soon as on_
  Quarantine quarantine_;
  FreeLog log_;
};

extern Hardening hardening;

/// For os::report_faults(): says what a block between guards, or a freed one that is held, has to
/// do with the address.
[[nodiscard]] bool report_fault(const void* address);

}  // namespace loam
