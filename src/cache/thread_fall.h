// When a thread looks whether the heap's use falls, and what it then gives back (decision 104).
// Pure arithmetic over numbers.
//
//   fallen = bytes given to bins since the last look, less those taken
//   a look:  when fallen reaches a step, a share of what is in use; half of what may fall until a
//            fall is no longer waited for, if that is more
//   bound  = the larger of kFallFloor and used / (kFallShare / 2)      what may stay free in spans
//
// The thread freed much more than it took. If that left free memory inside of spans, there may be
// no call afterwards that gives it back, and each cached block keeps its page.
#pragma once

#include "base/units.h"
#include "pages/purge_policy.h"

namespace loam {

class ThreadFall {
 public:
  /// What all threads free between two looks: this, or what they use divided by kFallShare. A look
  /// is some 2,000 instructions, and fewer pages than a batch need no look.
  static constexpr size_t kFallStep = PurgePolicy::kBatch.bytes();
  static constexpr size_t kFallShare = 2 * PurgePolicy::kFallShare;
  /// What a fall leaves free inside of spans: the floor of the page heap.
  static constexpr size_t kFallFloor = PurgePolicy::kFloor.bytes();
  /// The fewest bytes of a thread between two looks: at its end each block may free a page.
  static constexpr size_t kLeastFallStep = size_t{64} << 10;
  /// A heap of fewer bytes gives nothing back for a fall.
  static constexpr size_t kSmallHeap = size_t{4} << 20;
  /// Refills that end a fall's short magazines. Chosen: more than a program makes while it frees
  /// what it is done with.
  static constexpr uint32_t kRefillsToGrow = 16;

  /// More than any fall: a test lets no fall give anything back (PageHeap::keep_falls()).
  static constexpr size_t kEverything = SIZE_MAX / 2;

  struct Nothing {};
  /// All zero, for the caches that hold nothing.
  constexpr explicit ThreadFall(Nothing) : step_(0) {}
  constexpr ThreadFall() = default;

  /// Whether a look is due.
  [[nodiscard]] LOAM_INLINE bool note_given(size_t bytes) {
    fallen_ += bytes;
    return fallen_ >= step_;
  }
  LOAM_INLINE void note_taken(size_t bytes) {
    fallen_ -= bytes < fallen_ ? bytes : fallen_;
    if (LOAM_UNLIKELY(refills_left_ != 0) && --refills_left_ == 0) comes_back_ = true;
  }
  /// Whether magazines stay short, as blocks only leave.
  [[nodiscard]] bool is_short() const { return refills_left_ != 0; }
  void shorten() { refills_left_ = kRefillsToGrow; }
  /// What came back once may not be waited for any more.
  void end_wait() {
    if (LOAM_LIKELY(!step_is_long_)) return;
    step_is_long_ = false;
    step_ = kFallStep;
  }
  /// Begins a new count of what is given.
  void begin() {
    fallen_ = 0;
    step_ = kFallStep;
  }

  struct Look {
    size_t used;      ///< bytes of slots in use
    size_t free;      ///< bytes of free pages inside of spans
    size_t fallen;    ///< bytes by which the use of slots fell since the last purge
    size_t returned;  ///< bytes that came back after an earlier fall: they may do so again
    size_t cached;    ///< bytes in all magazines
    size_t threads;
  };
  struct Decision {
    bool is_held;   ///< use fell by no more than what came back
    bool shortens;  ///< magazines return their blocks, and keep pages of `keep` bytes at most
    size_t keep;
    bool purges;  ///< free pages inside of spans go back
  };
  [[nodiscard]] Decision decide(const Look& look) {
    const size_t share = look.used / kFallShare;
    const size_t most = 2 * share < kFallFloor ? kFallFloor : 2 * share;
    step_is_long_ = false;
    step_ = (share < kFallStep ? kFallStep : share) / look.threads;
    if (step_ < kLeastFallStep) step_ = kLeastFallStep;
    // Others may take what this thread frees: then use does not fall.
    const bool falls = look.used + step_ / 2 < used_before_;
    used_before_ = look.used;
    const size_t at_stake = look.free + (falls ? look.cached : 0);
    const bool is_held = look.fallen <= look.returned;
    // What others took again says nothing of this thread, until it took again itself.
    const bool waits = comes_back_ || look.returned >= kEverything;
    if (is_held && waits) {
      // No look gives anything back before use fell by what came back.
      const size_t rest = (look.returned - look.fallen) / 2 / look.threads;
      step_is_long_ = rest > step_;
      if (step_is_long_) step_ = rest;
      return {is_held, false, 0, false};
    }
    if (at_stake <= most) return {is_held, false, 0, false};
    if (share < kFallStep) step_ = kLeastFallStep;
    return {is_held, true, most / look.threads, look.free > most && !is_held};
  }

 private:
  size_t fallen_ = 0;
  size_t used_before_ = 0;  ///< at the last look
  size_t step_ = kFallStep;
  uint32_t refills_left_ = 0;
  bool comes_back_ = false;    ///< the thread took again after it had returned its blocks
  bool step_is_long_ = false;  ///< because a fall is waited for
};

}  // namespace loam
