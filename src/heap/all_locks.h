// Every lock of every heap, in order: for copying all figures at one moment, and for fork().
#pragma once

#include "base/config.h"

namespace loam::heap {

/// Nothing may be allocated meanwhile.
void lock_everything() LOAM_NO_THREAD_SAFETY_ANALYSIS;
void unlock_everything() LOAM_NO_THREAD_SAFETY_ANALYSIS;

/// Hooks fork(): before anything else that has handlers, and before a thread uses the heap. May be
/// called again.
void register_fork();

}  // namespace loam::heap
