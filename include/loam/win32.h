/* The Windows heap functions over Loam, for C99 and later and C++: programs written for Windows
 * compile unchanged. On Windows this header is <windows.h> and <malloc.h>, nothing more.
 *
 *   HANDLE heap = HeapCreate(0, 0, 0);
 *   void* block = HeapAlloc(heap, HEAP_ZERO_MEMORY, 100);
 *   ...
 *   HeapDestroy(heap);                        every block ends with it
 *
 * Link with libloam (loam::loam, loam::loam_static, pkg-config loam). docs/porting.md compares
 * function by function, with the reasons for what this header says in short.
 *
 * Symbols. The library exports loam_win32_HeapCreate and so on; the declarations below give each
 * function its Windows name with an assembler label. A symbol HeapCreate would hijack the calls of
 * programs that bring their own (winelib programs, other ports). Wrappers in the header would give
 * one function a different address in each source file.
 *
 * Errors. A function that fails sets the thread's last error, GetLastError(). A function that
 * succeeds leaves it alone unless its comment says otherwise. The CRT functions (names with an
 * underscore) set errno instead: EINVAL for a bad argument, as if an invalid-parameter handler that
 * returns were installed, and ENOMEM for lack of memory.
 *
 * Misuse. Every function looks up its handles and pointers and trusts none. A handle that is no
 * live heap is answered with ERROR_INVALID_HANDLE, a pointer that is no live block there with
 * ERROR_INVALID_PARAMETER, a NULL handle with ERROR_NOACCESS. Where Windows says "undefined", the
 * heap does not change. A double free, which the library calls corruption, follows the corruption
 * policy: by default one line and abort().
 *
 * HEAP_NO_SERIALIZE matters when a heap is created and is ignored in single calls.
 * loam_win32_set_exception_handler() says what HEAP_GENERATE_EXCEPTIONS does.
 *
 * Any thread may call every function at any time, except with heaps created with HEAP_NO_SERIALIZE:
 * the program serialises the calls on those.
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

/* The symbol behind a Windows name. Mach-O, for one, puts an underscore before C names. */
#define LOAM_WIN32_QUOTE_(x) #x
#define LOAM_WIN32_QUOTE(x) LOAM_WIN32_QUOTE_(x)
#define LOAM_WIN32_NAME(name) __asm__(LOAM_WIN32_QUOTE(__USER_LABEL_PREFIX__) "loam_win32_" #name)

/* --- Last error ------------------------------------------------------------------------------ */

/* The calling thread's last error; NO_ERROR in a new thread. errno is separate and does not
 * change. */
DWORD WINAPI GetLastError(void) LOAM_WIN32_NAME(GetLastError);
void WINAPI SetLastError(DWORD error) LOAM_WIN32_NAME(SetLastError);

/* --- Heaps ----------------------------------------------------------------------------------- */

/* Creates a private heap. `options` may be HEAP_NO_SERIALIZE and HEAP_GENERATE_EXCEPTIONS;
 * HEAP_CREATE_ENABLE_EXECUTE fails with ERROR_NOT_SUPPORTED, the other flags are ignored. With a
 * `maximum` of 0 the heap grows and serves any block size. Otherwise it never holds more than
 * `maximum` bytes, rounded up to pages, its own records included. Single blocks then have no lower
 * limit than that, and in a full heap a freed block serves any smaller request. `initial` bytes are
 * committed at once; initial > maximum != 0 is ERROR_INVALID_PARAMETER. NULL:
 * ERROR_NOT_ENOUGH_MEMORY or one of the above. Handles are pointers, without Windows' 64 KiB
 * alignment. */
HANDLE WINAPI HeapCreate(DWORD options, SIZE_T initial, SIZE_T maximum) LOAM_WIN32_NAME(HeapCreate);

/* Frees the heap with all of its blocks. FALSE and ERROR_INVALID_HANDLE for the process heap, a
 * destroyed heap or no heap; ERROR_NOACCESS for NULL. No other thread may be using the heap. */
BOOL WINAPI HeapDestroy(HANDLE heap) LOAM_WIN32_NAME(HeapDestroy);

/* The process's heap; the first call makes it, and it is never destroyed. It is a heap of its own
 * beside malloc's, because HeapSize() and a zeroing HeapReAlloc() need exact sizes, and the memory
 * for those is not spent in malloc's heap. */
HANDLE WINAPI GetProcessHeap(void) LOAM_WIN32_NAME(GetProcessHeap);

/* Returns the number of live heaps and stores as many handles as fit: the process heap first, then
 * malloc's, then all other heaps, also those of loam_heap_create(). */
DWORD WINAPI GetProcessHeaps(DWORD count, PHANDLE heaps) LOAM_WIN32_NAME(GetProcessHeaps);

/* --- Blocks ---------------------------------------------------------------------------------- */

/* A block of exactly `bytes` bytes (0 is a size like any other), aligned to 16. HEAP_ZERO_MEMORY
 * clears it. NULL: ERROR_NOT_ENOUGH_MEMORY, which Windows sets as well although its documentation
 * denies it. */
LPVOID WINAPI HeapAlloc(HANDLE heap, DWORD flags, SIZE_T bytes) LOAM_WIN32_NAME(HeapAlloc);

/* Resizes the block, and moves it if it must; 0 keeps a block of size 0. HEAP_ZERO_MEMORY clears
 * the bytes that it gains. With HEAP_REALLOC_IN_PLACE_ONLY the call fails if the block would have
 * to move. NULL: the old block is as it was; ERROR_NOT_ENOUGH_MEMORY, or ERROR_INVALID_PARAMETER
 * for a NULL `block`: no block is allocated for it. */
LPVOID WINAPI HeapReAlloc(HANDLE heap, DWORD flags, LPVOID block, SIZE_T bytes)
    LOAM_WIN32_NAME(HeapReAlloc);

/* Frees the block, from any thread. NULL is allowed. */
BOOL WINAPI HeapFree(HANDLE heap, DWORD flags, LPVOID block) LOAM_WIN32_NAME(HeapFree);

/* The size that was asked for, to the byte; (SIZE_T)-1 for a pointer that is no live block here. */
SIZE_T WINAPI HeapSize(HANDLE heap, DWORD flags, LPCVOID block) LOAM_WIN32_NAME(HeapSize);

/* --- Looking inside -------------------------------------------------------------------------- */

/* Checks the heap (`block` NULL) or one block. Any pointer is answered, an unmapped one too, and
 * the last error stays as it is. The check of a whole heap takes time in proportion to its size. */
BOOL WINAPI HeapValidate(HANDLE heap, DWORD flags, LPCVOID block) LOAM_WIN32_NAME(HeapValidate);

/* Stops other threads' use of the heap: their HeapLock, HeapAlloc and HeapFree wait, whatever the
 * block's size (on Windows calls that the LFH serves do not wait). Recursive. On a
 * HEAP_NO_SERIALIZE heap both functions answer TRUE and have no effect. */
BOOL WINAPI HeapLock(HANDLE heap) LOAM_WIN32_NAME(HeapLock);
BOOL WINAPI HeapUnlock(HANDLE heap) LOAM_WIN32_NAME(HeapUnlock);

/* Steps to the entry after `entry`, or to the first if entry->lpData is NULL. Each call finds its
 * position from the entry alone, so a walk may be dropped at any time. FALSE and
 * ERROR_NO_MORE_ITEMS at the end. Lock the heap first: while other threads change it, the walk may
 * miss blocks. */
BOOL WINAPI HeapWalk(HANDLE heap, LPPROCESS_HEAP_ENTRY entry) LOAM_WIN32_NAME(HeapWalk);

/* Fails with ERROR_INVALID_PARAMETER if `flags` is not 0 or summary->cb is wrong. */
BOOL WINAPI HeapSummary(HANDLE heap, DWORD flags, LPHEAP_SUMMARY summary)
    LOAM_WIN32_NAME(HeapSummary);

/* Returns the largest free committed block in bytes; 0 and NO_ERROR if there is none. Unlike on
 * Windows it also gives free memory back to the system; for the process heap, malloc's as well. */
SIZE_T WINAPI HeapCompact(HANDLE heap, DWORD flags) LOAM_WIN32_NAME(HeapCompact);

/* HeapCompatibilityInformation: 2 turns the low-fragmentation front end on for good. A heap that
 * is used enough turns it on by itself, so this only makes it start at once. 2 again is TRUE; 0 or
 * 1 is then ERROR_GEN_FAILURE. Fixed and HEAP_NO_SERIALIZE heaps accept 2, which Windows refuses.
 * HeapEnableTerminationOnCorruption (NULL, 0; any heap or NULL): misuse ends the process, for good.
 * HeapOptimizeResources: gives memory back; for every heap if `heap` is NULL.
 * FALSE: ERROR_INVALID_PARAMETER for another class or value, ERROR_INSUFFICIENT_BUFFER for a short
 * buffer. */
BOOL WINAPI HeapSetInformation(HANDLE heap, HEAP_INFORMATION_CLASS information, PVOID buffer,
                               SIZE_T length) LOAM_WIN32_NAME(HeapSetInformation);

/* Answers HeapCompatibilityInformation only: 0 standard, 2 low-fragmentation. *returned (may be
 * NULL) is 4.
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
 * removes the handler. The function returns the previous handler. */
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
/* As _aligned_realloc with count * bytes; the bytes that the block gains are zero. */
void* _aligned_recalloc(void* block, size_t count, size_t bytes, size_t alignment)
    LOAM_WIN32_NAME(aligned_recalloc);
void* _aligned_offset_recalloc(void* block, size_t count, size_t bytes, size_t alignment,
                               size_t offset) LOAM_WIN32_NAME(aligned_offset_recalloc);
/* The size that was asked for; (size_t)-1 and EINVAL for NULL. */
size_t _aligned_msize(void* block, size_t alignment, size_t offset) LOAM_WIN32_NAME(aligned_msize);
void _aligned_free(void* block) LOAM_WIN32_NAME(aligned_free);

/* These take blocks of malloc and of any heap. _msize returns the usable bytes, which for malloc's
 * blocks may be more than were asked for. _expand resizes in place, or returns NULL. _recalloc is
 * realloc with count * bytes; the bytes that the block gains behind _msize() are zero. */
size_t _msize(void* block) LOAM_WIN32_NAME(msize);
void* _expand(void* block, size_t bytes) LOAM_WIN32_NAME(expand);
void* _recalloc(void* block, size_t count, size_t bytes) LOAM_WIN32_NAME(recalloc);

/* Gives free memory of malloc and the process heap back to the system. Returns 0. */
int _heapmin(void) LOAM_WIN32_NAME(heapmin);
/* _HEAPOK, or _HEAPBADNODE if the process heap's structures are damaged. malloc's heap is not
 * checked: that check needs all other threads to be quiet. */
int _heapchk(void) LOAM_WIN32_NAME(heapchk);

/* Blocks of the process heap up to this size go through threads' caches; 0 turns the caches off.
 * malloc's caches do not change. Returns 1, or 0 and EINVAL when `bytes` is above 16 KiB. */
int _set_sbh_threshold(size_t bytes) LOAM_WIN32_NAME(set_sbh_threshold);
size_t _get_sbh_threshold(void) LOAM_WIN32_NAME(get_sbh_threshold);

#ifdef __cplusplus
}
#endif

#endif /* _WIN32 */
#endif
