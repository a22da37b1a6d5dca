// The random decisions of a thread's cache: which block gets guards (decision 73), which slot of a
// magazine is handed out.
#pragma once

#include "cache/magazines.h"
#include "os/random.h"

namespace loam {

class Draws {
 public:
  constexpr Draws() = default;

  [[nodiscard]] bool coin() { return (random_.around(uint64_t{1} << 32) & 1) != 0; }
  /// From the source of good random numbers. pre: random_source was started, and limit is at most
  /// the length of the longest magazine
  [[nodiscard]] uint32_t random_below(uint32_t limit);
  /// In the child of a fork(): the child must not draw the numbers that the parent draws next.
  void forget_random() { random_left_ = 0; }

  /// Whether one of `blocks` blocks of the class is to get guards.
  [[nodiscard]] LOAM_COLD bool draws_guard(unsigned size_class, unsigned blocks);
  /// The next request that finds the magazine's head at `at` gets guards.
  LOAM_COLD void aim_guard(unsigned size_class, void** at);
  /// The same for one place between the two.
  LOAM_COLD void aim_guard_between(unsigned size_class, void** first, void** end);
  [[nodiscard]] bool aims() const { return guard_at_ != nullptr; }
  /// Makes the aimed request a slow one, if the class is the aim's.
  LOAM_COLD void keep_aim(unsigned size_class, Magazine m);
  /// True if this request of the class, which finds the magazine's head there, is the aimed one:
  /// once.
  [[nodiscard]] bool guard_is_due(unsigned size_class, void* const* head) {
    if (LOAM_LIKELY(guard_at_ == nullptr) || size_class != guard_class_ || head != guard_at_)
      return false;
    guard_at_ = nullptr;
    return true;
  }

 private:
  static constexpr unsigned kRandomHalves = 32;  // a block of the stream
  QuickRandom random_ = {};
  void** guard_at_ = nullptr;  ///< the request at this head gets guards
  uint32_t usual_bytes_ = 0;   ///< of blocks, about, shifted; 0 = not known yet
  uint32_t random_left_ = 0;
  uint16_t random_halves_[kRandomHalves] = {};  // the first random_left_ of them were not used yet
  uint8_t guard_class_ = 0;                     ///< of guard_at_
};

}  // namespace loam
