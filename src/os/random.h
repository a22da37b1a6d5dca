// Random numbers that an attacker cannot foretell from those he has seen: the ChaCha stream cipher with 8 rounds
// (Bernstein 2008), keyed by the system. For choices of the hardened heap; the default heap makes none.
//
// Thread-safe by a lock of its own, the last in the order. A fork()ed child must call reset_after_fork(), or parent and
// child would make the same choices.
#pragma once

#include "os/mutex.h"

namespace loam {

class RandomSource {
 public:
  constexpr RandomSource() = default;

  /// Takes a key from the system; once, before threads start.
  void start();
  /// Uniform in [0, limit). pre: start() was called, limit >= 1
  [[nodiscard]] uint32_t below(uint32_t limit);
  void reset_after_fork();

 private:
  void refill();  // the lock is held
  [[nodiscard]] uint32_t next_half();  // the same

  static constexpr unsigned kWords = 16;
  static constexpr uint32_t kShortLimit = 1u << 12;  // longer than a magazine; one draw in 16 at most has to look at the remainder
  Mutex mutex_;
  uint32_t key_[12] = {};  // 8 of key, 2 of counter, 2 of nonce
  uint32_t output_[kWords] = {};
  unsigned halves_left_ = 0;  // of words of output_, that are not yet used: its last ones
};

extern RandomSource random_source;

}  // namespace loam
