// Takes every lock of every heap, in order. A copy of all figures at one moment needs this, and so
// does fork().
#pragma once

#include "base/config.h"

namespace loam::heap {

/// No thread may allocate until unlock_everything().
void lock_everything() LOAM_NO_THREAD_SAFETY_ANALYSIS;
void unlock_everything() LOAM_NO_THREAD_SAFETY_ANALYSIS;

/// Hooks fork(), before a library registers handlers and before a second thread uses the heap. May
/// be called again.
void register_fork();

}  // namespace loam::heap
