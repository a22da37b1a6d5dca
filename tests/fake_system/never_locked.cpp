// The calls of os.h that differ only in a program that locks its memory, or has a library that
// watches it. On these systems, the pretended one and the fuzzer's, no program does.
#include "os/os.h"

namespace loam::os {

Committed commit_more(void* address, size_t bytes) {
  return commit(address, bytes) ? Committed::kYes : Committed::kRefused;
}
void give_up(void* address, size_t bytes) { release(address, bytes); }
void stop_reserving() {}
bool is_reserving() { return true; }
bool can_stop_reserving() { return false; }
bool is_watched() { return false; }
void unmap_block(void* address, size_t bytes) { release(address, bytes); }
bool is_new_memory_locked(const void*, size_t) { return false; }
bool locks_new_memory() { return false; }
void unlock_zeros(void*, size_t) {}
bool commit_sparse(void* address, size_t bytes) { return commit(address, bytes); }
bool lock_all_memory(int, Locked) { return true; }

}  // namespace loam::os
