// The ways that malloc() and free() take beside the common one: the slow paths look at one word,
// which is zero, and nothing else, in a program that asked for no detour.
//
// While calls are sampled, or the heap is hardened, all magazines are armed (thread_cache.h): every
// call takes the slow path, which looks here. Written before threads start, but for kRecorded.
#pragma once

#include "base/config.h"

namespace loam {

/// kRecorded is set by another process, while threads run (cache/recording_request.h), and stays.
enum Detour : unsigned { kSampled = 1, kHardened = 2, kGuarded = 4, kRecorded = 8 };
extern constinit unsigned detours;

/// Once a detour, before threads start.
void take_detour(Detour detour);
/// The same, but magazines are not armed: for a detour that only calls take that are slow anyway.
void take_rare_detour(Detour detour);

}  // namespace loam
