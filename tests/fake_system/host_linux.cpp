#if defined(__linux__)

#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "base/units.h"
#include "fake_system/host.h"

namespace loam::os::fake::host {

void* reserve(size_t bytes, size_t alignment) {
  const size_t padded = bytes + alignment;
  void* p = mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(p);
  const uintptr_t aligned = round_up(begin, alignment);
  if (aligned != begin) munmap(p, aligned - begin);
  if (aligned != begin + alignment) {
    munmap(reinterpret_cast<void*>(aligned + bytes), begin + padded - (aligned + bytes));
  }
  return reinterpret_cast<void*>(aligned);
}

bool commit(void* address, size_t bytes) {
  return mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0;
}
bool purge(void* address, size_t bytes) { return madvise(address, bytes, MADV_DONTNEED) == 0; }
void release(void* address, size_t bytes) { munmap(address, bytes); }

// As in linux.cpp.
void barrier() {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  }
}

}  // namespace loam::os::fake::host

#endif  // __linux__
