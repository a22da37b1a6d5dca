// What the Windows functions share: the thread's last error, what HEAP_GENERATE_EXCEPTIONS does,
// and the process heap. Thread-safe.
#pragma once

#include "loam/loam.h"
#include "loam/win32.h"

namespace loam::win32 {

/// The flag among loam_heap_flags()' user flags that stands for the heap's
/// HEAP_GENERATE_EXCEPTIONS.
inline constexpr unsigned kRaises = 1u << 24;

void set_last_error(DWORD error);

/// The Windows error for a status. A null handle is told apart from a bad one, as Windows does.
[[nodiscard]] DWORD error_of(loam_status status, const void* heap);

/// Sets the last error, and calls the exception handler if the heap's flags or the call's ask for
/// it. Always null, if it returns.
void* fail_allocation(loam_status status, HANDLE heap, DWORD flags, SIZE_T bytes);

/// A heap of exact sizes, because HeapSize() promises them. `flags` are loam_heap_create()'s.
[[nodiscard]] loam_heap* make_heap(unsigned flags, SIZE_T initial, SIZE_T maximum,
                                   const char* name);

/// Made by the first call; null when there is no memory for it.
[[nodiscard]] loam_heap* get_process_heap();

/// The process heap or the default heap: neither may be destroyed.
[[nodiscard]] bool is_permanent(const void* heap);

}  // namespace loam::win32
