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

/// The same bytes, but 0 for a block of 0 bytes, and SIZE_MAX for everything else.
[[nodiscard]] size_t system_block_size(const void* block);

/// Bytes from `block` to the end of the live block in which that allocator's _aligned_malloc()
/// placed it; 0 for everything else. On Windows alone.
[[nodiscard]] size_t aligned_system_block_bytes(const void* block);
/// pre: aligned_system_block_bytes(block) != 0
void free_aligned_system_block(void* block);

/// What a module of a Windows program tells the others that contain a heap too: theirs are "the C
/// library's own" to each other. It lies alone in a section of this name, by which they find it.
struct ModuleHeap {
  static constexpr uint64_t kMagic = 0x31706165486d616f;  // "oamHeap1"
  uint64_t magic;
  size_t (*size)(const void* block);  ///< SIZE_MAX if it is no live block of the module's heap
  void (*free)(void* block);
};
#define LOAM_MODULE_HEAP_SECTION ".loamhp"

/// Windows: if this module imports the C++ run-time's DLL, that DLL calls these functions from now
/// on in place of the C run-time's of the same names. Call before the program's own code runs.
struct Replacement {
  const char* name;
  void* function;
};
void serve_cxx_runtime(const Replacement* list, size_t count);

}  // namespace loam::os

/// Finds the other allocator's free() early. Later, a thread could wait in dlsym() for a dlopen()
/// that waits for the thread. For src/api/dlopen.c.
extern "C" __attribute__((visibility("hidden"))) void loam_find_system_free();
