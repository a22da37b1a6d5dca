// Shared by the Windows functions: the thread's last error, the effect of HEAP_GENERATE_EXCEPTIONS,
// and the process heap. Thread-safe.
#pragma once

#include "loam/loam.h"
#include "loam/win32.h"

namespace loam::win32 {

/// The flag for HEAP_GENERATE_EXCEPTIONS among the user flags of loam_heap_flags().
inline constexpr unsigned kRaises = 1u << 24;

void set_last_error(DWORD error);

/// The Windows error for a status. A null handle has another error than a bad one, as on Windows.
[[nodiscard]] DWORD error_of(loam_status status, const void* heap);

/// Sets the last error, and calls the exception handler if the heap's flags or the call's demand
/// it. If it returns, it returns null.
void* fail_allocation(loam_status status, HANDLE heap, DWORD flags, SIZE_T bytes);

/// Makes a heap of exact sizes, because HeapSize() promises them. `flags` are those of
/// loam_heap_create().
[[nodiscard]] loam_heap* make_heap(unsigned flags, SIZE_T initial, SIZE_T maximum,
                                   const char* name);

/// The process heap, which the first call makes; null when there is no memory for it.
[[nodiscard]] loam_heap* get_process_heap();

/// The process heap or the default heap: neither may be destroyed.
[[nodiscard]] bool is_permanent(const void* heap);

}  // namespace loam::win32
