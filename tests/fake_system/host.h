// The functions of the real system that the pretended system needs: memory for metadata, and a
// barrier for tests with threads. They are in host_linux.cpp and host_windows.cpp.
#pragma once

#include <cstddef>

namespace loam::os::fake::host {

/// Address space without access; null where there is none.
[[nodiscard]] void* reserve(size_t bytes, size_t alignment);
/// Makes it readable and writable; zero at first.
[[nodiscard]] bool commit(void* address, size_t bytes);
/// Committed memory reads as zero afterwards.
[[nodiscard]] bool purge(void* address, size_t bytes);
void release(void* address, size_t bytes);

/// os::barrier_all_threads(), or nothing where the system has no such call.
void barrier();

}  // namespace loam::os::fake::host
