// The hardened default heap (LOAM_HARDEN, LOAM_CHECK_FREE=full): exact knowledge of every block,
// and the features that the user selects: canaries, a quarantine, zeroing, random slots, guard
// pages and a log of frees.
//
//   malloc --> detour --> Hardening::allocate() --> PlainHeap::allocate_*  state, canary written
//   free   --> detour --> Hardening::free()   --> quarantine --> PlainHeap::free_*  poison checked
//
// With guards or a quarantine, blocks above the largest class belong to walled_blocks: they lie
// between inaccessible pages, and their addresses are held after they are freed. With guards, a
// block of no bytes is an inaccessible address.
//
// While hardening is off, no path has code for it except the detour that sampling uses as well
// (detours.h). A finding goes to report_misuse(): it writes one line and ends the process; with
// LOAM_ON_CORRUPTION=report the program goes on. Thread-safe. docs/hardening.md says what is caught
// and what it costs.
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
  /// The features of LOAM_HARDEN=all; a sample besides would find nothing more.
  static constexpr unsigned kAll = (1u << 6) - 1;
  /// Default: the size that `quarantine` without a number means. A larger one finds later uses, and
  /// costs as much more memory.
  static constexpr size_t kQuarantineBytes = size_t{1} << 20;
  static constexpr size_t kMostQuarantineBytes = size_t{1} << 36;
  static constexpr size_t kNotSaid = SIZE_MAX;

  /// Call once, before threads start. False when the system refuses memory, or other threads run
  /// already: then all stays off. `checks`: every block is known exactly, even if no feature needs
  /// that. `plain`: the functions that hardening is built on.
  [[nodiscard]] bool start(unsigned features, size_t quarantine_bytes, bool checks,
                           const PlainHeap& plain);
  [[nodiscard]] LOAM_INLINE bool on() const { return LOAM_UNLIKELY(on_); }
  [[nodiscard]] bool has(Feature feature) const { return (features_ & feature) != 0; }

  /// pre: on(); alignment is a power of two. *zero (large blocks): the block is zero.
  [[nodiscard]] void* allocate(size_t bytes, size_t alignment, bool* zero);
  /// The same at the heap's own alignment; `size_class` is the class for `bytes`. pre: on()
  [[nodiscard]] void* allocate_small(unsigned size_class, size_t bytes);
  /// free() of a block whose class the map knows. pre: on(), the class is not 0, block is at a
  /// multiple of 16
  void free_small(unsigned size_class, void* block, const void* caller);
  /// `caller`: for the log. `said`: the block's size according to the program. pre: on(), block !=
  /// null
  void free(void* block, const void* caller, size_t said = kNotSaid);

  /// True if a live block that allocate() made begins there: the calls below need that.
  [[nodiscard]] bool owns(const void* block) const {
    return on_ && Shadow::is_live(state_of(block));
  }
  [[nodiscard]] bool is_nothing(const void* block) const {
    return reinterpret_cast<uintptr_t>(block) - nothing_ < kNothingBytes && nothing_ != 0;
  }
  /// For walks: the next live block of no bytes behind this one, or the first one for null. Null
  /// when there is none.
  [[nodiscard]] const void* nothing_after(const void* block) const;
  /// True if a live block of no bytes is there: an inaccessible address.
  [[nodiscard]] bool owns_nothing(const void* block) const {
    return is_nothing(block) && owns(block);
  }
  /// True if a block that begins there was freed and not handed out again.
  [[nodiscard]] bool freed(const void* block) const {
    return on_ && state_of(block) == Shadow::kFreed;
  }
  [[nodiscard]] void* reallocate(void* block, size_t bytes, const void* caller);
  [[nodiscard]] bool try_resize(void* block, size_t bytes);
  /// Bytes that were requested, which are also the usable bytes.
  [[nodiscard]] size_t requested(const void* block) const;
  /// True if the canary is whole.
  [[nodiscard]] bool intact(const void* block) const;

  /// A block between guards if this request of the class is to get one (LOAM_HARDEN=sample); null
  /// otherwise. `caller` has no code if it is not known.
  [[nodiscard]] void* allocate_sampled(unsigned size_class, size_t bytes, size_t alignment,
                                       os::Caller caller);

  /// True if the poison of every quarantined block is whole; `report`: damage is reported.
  bool quarantine_is_intact(bool report);
  /// Call at the program's end: checks the quarantine and the canaries of live blocks, and reports
  /// damage. Other threads may run.
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
  // The state in the shadow; kLarge for a block with walls.
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

  // Bound: addresses for four million live blocks of no bytes; more get none. The address space
  // costs nothing. 64 MiB
  static constexpr size_t kNothingBytes = size_t{64} << 20;
  friend bool report_fault(const void* address);

  bool on_ = false;
  bool forked_ =
      false;  // other threads were in the middle of calls: a state may be here without its canary
  unsigned features_ = 0;
  size_t canary_ = 0;  // least bytes behind a block
  uintptr_t nothing_ = 0;
  std::atomic<size_t> next_nothing_{0};
  PlainHeap plain_{};  // set when on_ is
  Quarantine quarantine_;
  FreeLog log_;
};

extern Hardening hardening;

/// For os::report_faults(): reports how the address relates to a block between guards, or to a
/// freed block that is held.
[[nodiscard]] bool report_fault(const void* address);

}  // namespace loam
