// Random numbers that an attacker cannot predict from the numbers already seen: the ChaCha stream
// cipher with 8 rounds (Bernstein 2008), keyed by the system. The hardened heap uses them for its
// choices; the default heap makes none.
//
// Thread-safe by a lock of its own, the last in the order. The child of a fork() must call
// reset_after_fork(). Otherwise parent and child would make the same choices.
#pragma once

#include "os/mutex.h"

namespace loam {

/// A number in [0, limit) from `bits` random ones, uniform, by multiplication instead of a
/// remainder. False: some results would be likelier, so draw again (Lemire 2019). The remainder, a
/// division, is computed only where the low half is this small, which is rare.
template <unsigned bits>
[[nodiscard]] LOAM_INLINE bool draws_below(uint64_t drawn, uint32_t limit, uint32_t* result) {
  const uint64_t product = drawn * limit, low = product & ((uint64_t{1} << bits) - 1);
  *result = static_cast<uint32_t>(product >> bits);
  return LOAM_LIKELY(low >= limit) || low >= ((uint64_t{1} << bits) - limit) % limit;
}

class RandomSource {
 public:
  constexpr RandomSource() = default;

  /// Takes a key from the system; once, before threads start.
  void start();
  /// Uniform in [0, limit). pre: start() was called, limit >= 1
  [[nodiscard]] uint32_t below(uint32_t limit);
  /// Halves of words, for threads that draw often and want to take the lock rarely.
  void take(uint16_t* out, unsigned count);
  void reset_after_fork();

 private:
  void refill();                       // pre: the lock is held
  [[nodiscard]] uint32_t next_half();  // the same

  static constexpr unsigned kWords = 16;
  Mutex mutex_;
  uint32_t key_[12] = {};  // 8 of key, 2 of counter, 2 of nonce
  uint32_t output_[kWords] = {};
  unsigned halves_left_ = 0;  // halves of output_ that are not yet used: its last ones
};

extern RandomSource random_source;

/// Random numbers of one thread that nobody needs to be surprised by: which call is sampled, which
/// block gets guards. All zero at first. Not thread-safe.
class QuickRandom {
 public:
  [[nodiscard]] uint64_t bits();
  /// Uniform in [1, 2 * mean - 1], so that no rhythm of the program escapes the samples.
  [[nodiscard]] uint64_t around(uint64_t mean) { return 1 + (bits() >> 11) % (2 * mean - 1); }

 private:
  uint64_t state_;
};

}  // namespace loam
