// Blocks of the C library's own allocator that reach this heap. They were allocated before this
// library was loaded, by libraries that were bound past it (RTLD_DEEPBIND), or by the C library
// itself. They go back to that allocator.
//
// Thread-safe. No lock of Loam's may be held.
#pragma once

#include "base/config.h"

namespace loam::os {

/// Usable bytes of a live block of that allocator; 0 for everything else, wild pointers included. A
/// look costs a system call, or, for blocks outside [heap], a read of /proc/self/maps.
[[nodiscard]] size_t system_block_bytes(const void* block);

/// pre: system_block_bytes(block) != 0
void free_system_block(void* block);

}  // namespace loam::os

/// Finds the other allocator's free() early. Later, a thread could wait in dlsym() for a dlopen()
/// that waits for the thread. For src/api/dlopen.c.
extern "C" __attribute__((visibility("hidden"))) void loam_find_system_free();
