// The Heap functions of <loam/win32.h> over the C interface: flags, last errors, Windows'
// structures. There is no policy here. Thread-safe as the C interface is.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "api/win32_state.h"
#include "base/config.h"

namespace loam::win32 {
namespace {

loam_heap* as_heap(HANDLE handle) { return static_cast<loam_heap*>(handle); }

BOOL refuse(DWORD error) {
  set_last_error(error);
  return FALSE;
}

BOOL answer(loam_status status, HANDLE handle) {
  if (LOAM_LIKELY(status == LOAM_OK)) return TRUE;
  return refuse(error_of(status, handle));
}

template <typename Narrow>
Narrow saturate(size_t value) {
  constexpr Narrow kMost = static_cast<Narrow>(~Narrow{0});
  return value > kMost ? kMost : static_cast<Narrow>(value);
}

// --- HeapWalk -----------------------------------------------------------------------------------
//
// PROCESS_HEAP_ENTRY has no room for a cursor, so a walk finds its position from the entry's other
// fields.

constexpr WORD kBusy = PROCESS_HEAP_ENTRY_BUSY;
constexpr BYTE kLastRegion = 255;

unsigned kind_of(const PROCESS_HEAP_ENTRY& entry) {
  if ((entry.wFlags & PROCESS_HEAP_REGION) != 0) return LOAM_ENTRY_REGION;
  if ((entry.wFlags & PROCESS_HEAP_UNCOMMITTED_RANGE) != 0) return LOAM_ENTRY_UNCOMMITTED;
  return (entry.wFlags & kBusy) != 0 ? unsigned{LOAM_ENTRY_SMALL} : unsigned{LOAM_ENTRY_FREE};
}

void describe(const loam_walk_entry& from, PROCESS_HEAP_ENTRY* to) {
  std::memset(to, 0, sizeof *to);
  to->lpData = from.address;
  to->cbData = saturate<DWORD>(from.bytes);
  to->cbOverhead = saturate<BYTE>(from.overhead);
  to->iRegionIndex = from.region > kLastRegion ? kLastRegion : static_cast<BYTE>(from.region);
  switch (from.kind) {
    case LOAM_ENTRY_REGION:
      to->wFlags = PROCESS_HEAP_REGION;
      to->Region.dwCommittedSize = saturate<DWORD>(from.committed_bytes);
      to->Region.dwUnCommittedSize = saturate<DWORD>(from.uncommitted_bytes);
      to->Region.lpFirstBlock = from.first;
      to->Region.lpLastBlock = from.last;
      break;
    case LOAM_ENTRY_UNCOMMITTED:
      to->wFlags = PROCESS_HEAP_UNCOMMITTED_RANGE;
      break;
    case LOAM_ENTRY_FREE:
      break;
    default:
      to->wFlags = kBusy;
  }
}

// --- Information --------------------------------------------------------------------------------

BOOL set_compatibility(HANDLE handle, const void* buffer, SIZE_T length) {
  if (buffer == nullptr) return refuse(ERROR_INVALID_PARAMETER);
  if (length < sizeof(ULONG)) return refuse(ERROR_INSUFFICIENT_BUFFER);
  ULONG mode;
  std::memcpy(&mode, buffer, sizeof mode);
  if (mode > LOAM_MODE_LOW_FRAGMENTATION) return refuse(ERROR_INVALID_PARAMETER);
  return answer(loam_set_mode(as_heap(handle), static_cast<int>(mode)), handle);
}

BOOL optimize_resources(HANDLE handle, const void* buffer, SIZE_T length) {
  HEAP_OPTIMIZE_RESOURCES_INFORMATION information;
  if (buffer == nullptr) return refuse(ERROR_INVALID_PARAMETER);
  if (length < sizeof information) return refuse(ERROR_INSUFFICIENT_BUFFER);
  std::memcpy(&information, buffer, sizeof information);
  if (information.Version != HEAP_OPTIMIZE_RESOURCES_CURRENT_VERSION || information.Flags != 0) {
    return refuse(ERROR_INVALID_PARAMETER);
  }
  return answer(loam_trim(as_heap(handle)), handle);
}

// Any handle is accepted, as on Windows: the policy is the process's.
BOOL terminate_on_corruption(const void* buffer, SIZE_T length) {
  if (buffer != nullptr || length != 0) return refuse(ERROR_INVALID_PARAMETER);
  return answer(loam_set_corruption_policy(LOAM_CORRUPTION_TERMINATE), nullptr);
}

// The reason of the previous call. A thread without a cache stores no reason; it has no cache for
// lack of memory, so that is the reason then.
loam_status why_refused() {
  const loam_status why = loam_last_status();
  return why == LOAM_OK ? LOAM_OUT_OF_MEMORY : why;
}

}  // namespace
}  // namespace loam::win32

using namespace loam::win32;

extern "C" {

LOAM_EXPORT HANDLE HeapCreate(DWORD options, SIZE_T initial, SIZE_T maximum) {
  const bool executable = (options & HEAP_CREATE_ENABLE_EXECUTE) != 0;
  if (executable || (maximum != 0 && initial > maximum)) {
    set_last_error(executable ? ERROR_NOT_SUPPORTED : ERROR_INVALID_PARAMETER);
    return nullptr;
  }
  unsigned flags = 0;
  if ((options & HEAP_NO_SERIALIZE) != 0) flags |= LOAM_HEAP_UNSYNCHRONIZED;
  if ((options & HEAP_GENERATE_EXCEPTIONS) != 0) flags |= kRaises;
  loam_heap* const heap = make_heap(flags, initial, maximum, "HeapCreate");
  if (heap == nullptr) set_last_error(error_of(why_refused(), heap));
  return heap;
}

LOAM_EXPORT BOOL HeapDestroy(HANDLE heap) {
  if (is_permanent(heap)) return refuse(ERROR_INVALID_HANDLE);
  return answer(loam_heap_destroy(as_heap(heap)), heap);
}

LOAM_EXPORT HANDLE GetProcessHeap(void) {
  loam_heap* const heap = get_process_heap();
  if (heap == nullptr) set_last_error(ERROR_NOT_ENOUGH_MEMORY);
  return heap;
}

LOAM_EXPORT DWORD GetProcessHeaps(DWORD count, PHANDLE heaps) {
  loam_heap* const first = get_process_heap();
  if (first == nullptr || (count != 0 && heaps == nullptr)) {
    set_last_error(first == nullptr ? ERROR_NOT_ENOUGH_MEMORY : ERROR_NOACCESS);
    return 0;
  }
  static_assert(sizeof(HANDLE) == sizeof(loam_heap*));
  const size_t found = loam_heaps(reinterpret_cast<loam_heap**>(heaps), count);
  // The list begins with the default heap. The process heap goes before it; the handles that it
  // displaces move up, as far as the process heap's old position.
  HANDLE carried = first;
  for (size_t i = 0; i < count && i < found; ++i) {
    const HANDLE here = heaps[i];
    heaps[i] = carried;
    if (here == first) break;
    carried = here;
  }
  return saturate<DWORD>(found);
}

LOAM_EXPORT LPVOID HeapAlloc(HANDLE heap, DWORD flags, SIZE_T bytes) {
  void* const block = (flags & HEAP_ZERO_MEMORY) != 0 ? loam_zalloc(as_heap(heap), bytes)
                                                      : loam_alloc(as_heap(heap), bytes);
  if (LOAM_LIKELY(block != nullptr)) return block;
  return fail_allocation(why_refused(), heap, flags, bytes);
}

LOAM_EXPORT LPVOID HeapReAlloc(HANDLE heap, DWORD flags, LPVOID block, SIZE_T bytes) {
  const bool zero = (flags & HEAP_ZERO_MEMORY) != 0;
  if ((flags & HEAP_REALLOC_IN_PLACE_ONLY) == 0) {
    void* const moved = zero ? loam_zrealloc(as_heap(heap), block, bytes)
                             : loam_realloc(as_heap(heap), block, bytes);
    if (LOAM_LIKELY(moved != nullptr)) return moved;
    return fail_allocation(why_refused(), heap, flags, bytes);
  }
  const size_t before = loam_size(as_heap(heap), block);
  if (before == SIZE_MAX) return fail_allocation(why_refused(), heap, flags, bytes);
  const loam_status status = loam_try_resize(as_heap(heap), block, bytes);
  if (status != LOAM_OK) return fail_allocation(status, heap, flags, bytes);
  if (zero && bytes > before) std::memset(static_cast<char*>(block) + before, 0, bytes - before);
  return block;
}

LOAM_EXPORT BOOL HeapFree(HANDLE heap, DWORD, LPVOID block) {
  return answer(loam_free(as_heap(heap), block), heap);
}

LOAM_EXPORT SIZE_T HeapSize(HANDLE heap, DWORD, LPCVOID block) {
  const size_t bytes = loam_size(as_heap(heap), block);
  if (LOAM_UNLIKELY(bytes == SIZE_MAX)) set_last_error(error_of(why_refused(), heap));
  return bytes;
}

// The documentation says that this function sets no last error.
LOAM_EXPORT BOOL HeapValidate(HANDLE heap, DWORD, LPCVOID block) {
  return loam_validate(as_heap(heap), block) == LOAM_OK;
}

LOAM_EXPORT BOOL HeapLock(HANDLE heap) { return answer(loam_lock(as_heap(heap)), heap); }

LOAM_EXPORT BOOL HeapUnlock(HANDLE heap) { return answer(loam_unlock(as_heap(heap)), heap); }

LOAM_EXPORT BOOL HeapWalk(HANDLE heap, LPPROCESS_HEAP_ENTRY entry) {
  if (entry == nullptr) return refuse(ERROR_INVALID_PARAMETER);
  loam_walk_entry step = {};
  step.size = sizeof step;
  if (entry->lpData != nullptr) {
    step.address = entry->lpData;
    step.kind = kind_of(*entry);
    step.bytes = entry->cbData;
    step.region = entry->iRegionIndex;
  }
  const loam_status status = loam_walk_next(as_heap(heap), &step);
  if (status != LOAM_OK) return refuse(error_of(status, heap));
  describe(step, entry);
  return TRUE;
}

LOAM_EXPORT BOOL HeapSummary(HANDLE heap, DWORD flags, LPHEAP_SUMMARY summary) {
  if (flags != 0 || summary == nullptr || summary->cb != sizeof *summary) {
    return refuse(ERROR_INVALID_PARAMETER);
  }
  loam_heap_summary from = {};
  from.size = sizeof from;
  const loam_status status = loam_summary(as_heap(heap), &from);
  if (status != LOAM_OK) return refuse(error_of(status, heap));
  summary->cbAllocated = from.allocated;
  summary->cbCommitted = from.committed;
  summary->cbReserved = from.reserved;
  summary->cbMaxReserve = from.maximum == 0 ? SIZE_MAX : from.maximum;
  return TRUE;
}

LOAM_EXPORT SIZE_T HeapCompact(HANDLE heap, DWORD) {
  size_t largest = loam_compact(as_heap(heap), nullptr);
  if (largest == 0) {
    // The largest free block is 0 both without one and without a heap. Only the last error tells
    // the caller which.
    const bool is_heap = loam_get_mode(as_heap(heap)) >= 0;
    set_last_error(is_heap ? NO_ERROR : error_of(LOAM_INVALID_HEAP, heap));
    if (!is_heap) return 0;
  }
  // A program that compacts the process heap means all its memory, and most of that is malloc's.
  // is_permanent() does not make the process heap.
  if (is_permanent(heap) && heap != loam_default()) {
    const size_t of_malloc = loam_compact(loam_default(), nullptr);
    if (of_malloc > largest) largest = of_malloc;
  }
  return largest;
}

LOAM_EXPORT BOOL HeapSetInformation(HANDLE heap, HEAP_INFORMATION_CLASS information, PVOID buffer,
                                    SIZE_T length) {
  switch (information) {
    case HeapCompatibilityInformation:
      return set_compatibility(heap, buffer, length);
    case HeapEnableTerminationOnCorruption:
      return terminate_on_corruption(buffer, length);
    case HeapOptimizeResources:
      return optimize_resources(heap, buffer, length);
  }
  return refuse(ERROR_INVALID_PARAMETER);
}

LOAM_EXPORT BOOL HeapQueryInformation(HANDLE heap, HEAP_INFORMATION_CLASS information, PVOID buffer,
                                      SIZE_T length, PSIZE_T returned) {
  if (information != HeapCompatibilityInformation) return refuse(ERROR_INVALID_PARAMETER);
  const int mode = loam_get_mode(as_heap(heap));
  if (mode < 0) return refuse(error_of(why_refused(), heap));
  if (returned != nullptr) *returned = sizeof(ULONG);
  if (length < sizeof(ULONG)) return refuse(ERROR_INSUFFICIENT_BUFFER);
  if (buffer == nullptr) return refuse(ERROR_NOACCESS);
  const ULONG value = static_cast<ULONG>(mode);
  std::memcpy(buffer, &value, sizeof value);
  return TRUE;
}

}  // extern "C"
