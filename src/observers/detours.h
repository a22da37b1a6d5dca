// The rarer ways through malloc() and free(). The slow paths look at one word and nothing else; in
// a program that asked for no detour the word is zero.
//
// While calls are sampled, the heap is hardened, or a profiler listens, no fast path serves: every
// call takes the slow path, which looks here. kSampled, kHardened and
// kGuarded are set before threads start; the others are set while threads run.
//
//   | kSampled kHardened kGuarded kProbed | kRecorded |      bytes of the word, the lowest first
//     the heap's own, by atomic operations  the tool's, by a store of one byte
#pragma once

#include <atomic>

#include "base/config.h"

namespace loam {

/// kRecorded is set by another process (observers/recording_request.h), and stays. It has a byte of
/// the word to itself: the tool stores that byte, and so loses no bit that the heap sets meanwhile.
enum Detour : unsigned {
  kSampled = 1,
  kHardened = 2,
  kGuarded = 4,
  kProbed = 8,
  kRecorded = 0x100,
};
extern constinit std::atomic<unsigned> taken_detours;
// relaxed: a thread that reads an old value takes the common way a little longer
[[nodiscard]] LOAM_INLINE unsigned detours() {
  return taken_detours.load(std::memory_order_relaxed);
}

/// Call once for each detour, before threads start.
void take_detour(Detour detour);
/// The same for a detour of calls that are slow anyway.
void take_rare_detour(Detour detour);
/// For a detour that is taken and left while threads run: each thread closes its own fast paths
/// when it notices. Sequentially consistent, so that the setter may look afterwards whether it was
/// late.
void take_passing_detour(Detour detour);
void leave_passing_detour(Detour detour);

/// Why every call takes the slow path.
enum class SlowFor : unsigned { kDetour = 1, kPassingDetour = 2, kChecks = 4 };
extern constinit std::atomic<unsigned> slow_for;
[[nodiscard]] LOAM_INLINE bool every_call_is_slow() {
  return slow_for.load(std::memory_order_relaxed) != 0;
}
void make_every_call_slow(SlowFor why, bool on);

}  // namespace loam
