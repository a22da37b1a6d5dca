/* The Windows heap functions over Loam, for C99 and later and C++: programs written for Windows
 * compile unchanged. On Windows this header is <windows.h> and <malloc.h>, nothing more.
 *
 *   HANDLE heap = HeapCreate(0, 0, 0);
 *   void* block = HeapAlloc(heap, HEAP_ZERO_MEMORY, 100);
 *   ...
 *   HeapDestroy(heap);                        every block goes with it
 *
 * Link with libloam (loam::loam, loam::loam_static, pkg-config loam). docs/porting.md compares
 * function by function. What is said here in short is said there with reasons.
 *
 * Symbols. The library exports loam_win32_HeapCreate and so on, and the declarations below rename
 * by assembler label. Exporting HeapCreate itself would hijack the calls of programs that bring
 * their own (winelib programs, other ports), and wrappers in the header would give one function a
 * different address in each source file.
 *
 * Errors. A function that fails sets the thread's last error, GetLastError(); one that succeeds
 * leaves it alone unless its comment says otherwise. The CRT functions (names with an underscore)
 * set errno instead: EINVAL for a bad argument, as if an invalid-parameter handler that returns
 * were installed, ENOMEM for want of memory.
 *
 * Misuse. Handles and pointers are looked up, not trusted: a handle that is no live heap is
 * answered with ERROR_INVALID_HANDLE, a pointer that is no live block of that heap with
 * ERROR_INVALID_PARAMETER, a NULL handle with ERROR_NOACCESS; where Windows says "undefined",
 * nothing happens to the heap. The exception is what the library calls corruption (a double free):
 * it follows the corruption policy, by default one line and abort().
 *
 * HEAP_NO_SERIALIZE counts when a heap is created and is ignored in single calls.
 * HEAP_GENERATE_EXCEPTIONS: see loam_win32_set_exception_handler().
 *
 * Thread-safe, all of it, except for heaps created with HEAP_NO_SERIALIZE, which their caller
 * guards.
 */
#ifndef LOAM_WIN32_H
#define LOAM_WIN32_H

#if defined(_WIN32)
#include <malloc.h>
#include <windows.h>
#else

#include <loam/win32_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The symbol behind a Windows name. Mach-O and others put an underscore before C names. */
#define LOAM_WIN32_QUOTE_(x) #x
#define LOAM_WIN32_QUOTE(x) LOAM_WIN32_QUOTE_(x)
#define LOAM_WIN32_NAME(name) __asm__(LOAM_WIN32_QUOTE(__USER_LABEL_PREFIX__) "loam_win32_" #name)

/* --- Last error ------------------------------------------------------------------------------ */

/* The calling thread's last error; NO_ERROR in a new thread. errno is something else and not
 * touched. */
DWORD WINAPI GetLastError(void) LOAM_WIN32_NAME(GetLastError);
void WINAPI SetLastError(DWORD error) LOAM_WIN32_NAME(SetLastError);

/* --- Heaps ----------------------------------------------------------------------------------- */

/* A private heap. `options`: HEAP_NO_SERIALIZE, HEAP_GENERATE_EXCEPTIONS;
 * HEAP_CREATE_ENABLE_EXECUTE fails with ERROR_NOT_SUPPORTED, the other flags are ignored. `maximum`
 * 0: growable, any block size. Otherwise the heap never holds more than `maximum` bytes, rounded up
 * to pages, its own records included; there is no lower limit for single blocks, and when the heap is
 * full, a freed block serves any smaller one. `initial` bytes
 * are committed at once; initial > maximum != 0 is ERROR_INVALID_PARAMETER. NULL:
 * ERROR_NOT_ENOUGH_MEMORY or one of the above. Handles are pointers, without Windows' 64 KiB
 * alignment. */
HANDLE WINAPI HeapCreate(DWORD options, SIZE_T initial, SIZE_T maximum) LOAM_WIN32_NAME(HeapCreate);

/* Frees the heap with all of its blocks. FALSE and ERROR_INVALID_HANDLE for the process heap, a
 * destroyed heap or no heap; ERROR_NOACCESS for NULL. No other thread may be using the heap. */
BOOL WINAPI HeapDestroy(HANDLE heap) LOAM_WIN32_NAME(HeapDestroy);

/* The process's heap, made by the first call and never destroyed. It is a heap of its own beside
 * malloc's, because HeapSize() and a zeroing HeapReAlloc() need exact sizes, which malloc does not
 * pay for. */
HANDLE WINAPI GetProcessHeap(void) LOAM_WIN32_NAME(GetProcessHeap);

/* The number of live heaps; as many handles as fit are stored: the process heap first, then malloc's
 * own, then all others, those of loam_heap_create() as well. */
DWORD WINAPI GetProcessHeaps(DWORD count, PHANDLE heaps) LOAM_WIN32_NAME(GetProcessHeaps);

/* --- Blocks ---------------------------------------------------------------------------------- */

/* A block of exactly `bytes` bytes (0 is a size as good as any), aligned to 16. HEAP_ZERO_MEMORY.
 * NULL: ERROR_NOT_ENOUGH_MEMORY, which Windows sets as well although its documentation denies it.
 */
LPVOID WINAPI HeapAlloc(HANDLE heap, DWORD flags, SIZE_T bytes) LOAM_WIN32_NAME(HeapAlloc);

/* The block with another size, perhaps elsewhere; 0 keeps a block of size 0. HEAP_ZERO_MEMORY
 * clears what is new, HEAP_REALLOC_IN_PLACE_ONLY fails rather than move. NULL: the old block is as
 * it was; ERROR_NOT_ENOUGH_MEMORY, or ERROR_INVALID_PARAMETER for a NULL `block`, which is not
 * allocated for. */
LPVOID WINAPI HeapReAlloc(HANDLE heap, DWORD flags, LPVOID block, SIZE_T bytes)
    LOAM_WIN32_NAME(HeapReAlloc);

/* NULL is fine. From any thread. */
BOOL WINAPI HeapFree(HANDLE heap, DWORD flags, LPVOID block) LOAM_WIN32_NAME(HeapFree);

/* The size that was asked for, to the byte; (SIZE_T)-1 for what is no live block of this heap. */
SIZE_T WINAPI HeapSize(HANDLE heap, DWORD flags, LPCVOID block) LOAM_WIN32_NAME(HeapSize);

/* --- Looking inside -------------------------------------------------------------------------- */

/* Whether the heap (block NULL) or one block is sound. Any pointer may be asked about, unmapped
 * ones too, and the last error stays as it is. Checking a whole heap takes time in proportion to
 * its size. */
BOOL WINAPI HeapValidate(HANDLE heap, DWORD flags, LPCVOID block) LOAM_WIN32_NAME(HeapValidate);

/* Keeps other threads out: HeapLock, HeapAlloc and HeapFree wait, whatever the block's size
 * (natively the LFH's blocks slip through). Recursive. On a HEAP_NO_SERIALIZE heap both answer TRUE
 * and do nothing. */
BOOL WINAPI HeapLock(HANDLE heap) LOAM_WIN32_NAME(HeapLock);
BOOL WINAPI HeapUnlock(HANDLE heap) LOAM_WIN32_NAME(HeapUnlock);

/* The next entry after `entry`, or the first if entry->lpData is NULL. Each call finds its place by
 * the entry alone, so a walk may be dropped at any time. FALSE and ERROR_NO_MORE_ITEMS at the end.
 * Lock the heap first: while others change it, blocks may be missed. */
BOOL WINAPI HeapWalk(HANDLE heap, LPPROCESS_HEAP_ENTRY entry) LOAM_WIN32_NAME(HeapWalk);

/* Fails with ERROR_INVALID_PARAMETER if `flags` is not 0 or summary->cb is wrong. */
BOOL WINAPI HeapSummary(HANDLE heap, DWORD flags, LPHEAP_SUMMARY summary)
    LOAM_WIN32_NAME(HeapSummary);

/* The largest free committed block in bytes; 0 and NO_ERROR if there is none. Other than on Windows
 * free memory goes back to the system before; on the process heap, malloc's as well. */
SIZE_T WINAPI HeapCompact(HANDLE heap, DWORD flags) LOAM_WIN32_NAME(HeapCompact);

/* HeapCompatibilityInformation: 2 turns the low-fragmentation front end on for good; it is on for
 * any heap that earns it, so this only makes it start at once. 2 again is TRUE; 0 or 1 then
 * ERROR_GEN_FAILURE. Fixed and HEAP_NO_SERIALIZE heaps, where Windows refuses, accept 2.
 * HeapEnableTerminationOnCorruption (NULL, 0; any heap or NULL): misuse ends the process, for good.
 * HeapOptimizeResources: gives memory back; for every heap if `heap` is NULL.
 * FALSE: ERROR_INVALID_PARAMETER for another class or value, ERROR_INSUFFICIENT_BUFFER for a short
 * buffer. */
BOOL WINAPI HeapSetInformation(HANDLE heap, HEAP_INFORMATION_CLASS information, PVOID buffer,
                               SIZE_T length) LOAM_WIN32_NAME(HeapSetInformation);

/* HeapCompatibilityInformation only: 0 standard, 2 low-fragmentation. *returned (may be NULL) is 4.
 * FALSE: ERROR_INSUFFICIENT_BUFFER, ERROR_INVALID_PARAMETER, or ERROR_NOACCESS for a NULL heap. */
BOOL WINAPI HeapQueryInformation(HANDLE heap, HEAP_INFORMATION_CLASS information, PVOID buffer,
                                 SIZE_T length, PSIZE_T returned)
    LOAM_WIN32_NAME(HeapQueryInformation);

/* --- Failure with HEAP_GENERATE_EXCEPTIONS --------------------------------------------------- */

/* There is no structured exception handling here. A call of HeapAlloc or HeapReAlloc that fails
 * under HEAP_GENERATE_EXCEPTIONS (the heap's or the call's) calls this handler instead of raising:
 * with STATUS_NO_MEMORY or STATUS_ACCESS_VIOLATION and the bytes asked for. The handler may end the
 * process, longjmp, or throw, if it is C++; if it returns, the call returns NULL. Without a handler
 * the process ends with one line on standard error, as an unhandled exception would end it. NULL
 * removes it. Returns the handler before. */
typedef void (*loam_win32_exception_handler)(DWORD status, SIZE_T bytes);
loam_win32_exception_handler loam_win32_set_exception_handler(loam_win32_exception_handler handler);

/* --- The C run-time's functions -------------------------------------------------------------- */

/* `alignment` is a power of two. The whole family lives in the process heap; _aligned_free, free
 * and HeapFree(GetProcessHeap()) all free a block that has no offset. NULL: EINVAL for size 0 or a
 * bad alignment, ENOMEM. With an `offset` (smaller than `bytes`, or EINVAL) address + offset is
 * aligned, and only _aligned_free frees. */
void* _aligned_malloc(size_t bytes, size_t alignment) LOAM_WIN32_NAME(aligned_malloc);
void* _aligned_offset_malloc(size_t bytes, size_t alignment, size_t offset)
    LOAM_WIN32_NAME(aligned_offset_malloc);
/* NULL allocates; size 0 frees and returns NULL. Alignment and offset must be those of the
 * allocation. */
void* _aligned_realloc(void* block, size_t bytes, size_t alignment)
    LOAM_WIN32_NAME(aligned_realloc);
void* _aligned_offset_realloc(void* block, size_t bytes, size_t alignment, size_t offset)
    LOAM_WIN32_NAME(aligned_offset_realloc);
/* As realloc, of count * bytes; what is new reads zero. */
void* _aligned_recalloc(void* block, size_t count, size_t bytes, size_t alignment)
    LOAM_WIN32_NAME(aligned_recalloc);
void* _aligned_offset_recalloc(void* block, size_t count, size_t bytes, size_t alignment,
                               size_t offset) LOAM_WIN32_NAME(aligned_offset_recalloc);
/* The size that was asked for; (size_t)-1 and EINVAL for NULL. */
size_t _aligned_msize(void* block, size_t alignment, size_t offset) LOAM_WIN32_NAME(aligned_msize);
void _aligned_free(void* block) LOAM_WIN32_NAME(aligned_free);

/* For blocks of malloc as well as of any heap. _msize: what may be used, which for malloc's own
 * blocks may be more than was asked for. _expand: resized in place, or NULL. _recalloc: as realloc,
 * of count * bytes; what is new behind _msize() reads zero. */
size_t _msize(void* block) LOAM_WIN32_NAME(msize);
void* _expand(void* block, size_t bytes) LOAM_WIN32_NAME(expand);
void* _recalloc(void* block, size_t count, size_t bytes) LOAM_WIN32_NAME(recalloc);

/* Free memory of malloc and the process heap goes back to the system. Returns 0. */
int _heapmin(void) LOAM_WIN32_NAME(heapmin);
/* _HEAPOK, or _HEAPBADNODE if the process heap's structures are damaged. malloc's heap is not
 * looked at: that would need all other threads to be quiet. */
int _heapchk(void) LOAM_WIN32_NAME(heapchk);

/* Blocks of the process heap up to this size go through threads' caches; 0 turns them off. malloc's
 * own are not changed. 1, or 0 and EINVAL when `bytes` is above 16 KiB. */
int _set_sbh_threshold(size_t bytes) LOAM_WIN32_NAME(set_sbh_threshold);
size_t _get_sbh_threshold(void) LOAM_WIN32_NAME(get_sbh_threshold);

#ifdef __cplusplus
}
#endif

#endif /* _WIN32 */
#endif
