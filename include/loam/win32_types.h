/* The Windows types, flags, structures and error codes that <loam/win32.h> uses, with their
 * documented values. Include <loam/win32.h>, not this file.
 *
 * DWORD, ULONG and LONG are 32 bits wide, as on Windows, although `long` has 64 bits on most
 * systems where this header is used: code that prints a DWORD with %lu gets a warning here and
 * wants a cast.
 *
 * A program that brings its own typedefs (winelib's windef.h, a port's own compatibility header)
 * defines LOAM_WIN32_NO_TYPES before including: then only structures, flags and error codes are
 * declared, from the program's own types. A flag or code that the program already defines is left
 * as it is.
 */
#ifndef LOAM_WIN32_TYPES_H
#define LOAM_WIN32_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifndef LOAM_WIN32_NO_TYPES
typedef int BOOL;
typedef uint8_t BYTE;
typedef uint16_t WORD;
typedef uint32_t DWORD;
typedef uint32_t ULONG;
typedef int32_t LONG;
typedef int INT;
typedef unsigned int UINT;
typedef uintptr_t ULONG_PTR;
typedef uintptr_t DWORD_PTR;
typedef size_t SIZE_T;
typedef void* PVOID;
typedef void* LPVOID;
typedef const void* LPCVOID;
typedef void* HANDLE;
typedef BOOL* PBOOL;
typedef DWORD* PDWORD;
typedef DWORD* LPDWORD;
typedef ULONG* PULONG;
typedef SIZE_T* PSIZE_T;
typedef HANDLE* PHANDLE;
#endif

#ifndef WINAPI
#define WINAPI
#endif
#ifndef TRUE
#define TRUE 1
#endif
#ifndef FALSE
#define FALSE 0
#endif

/* --- Flags of the heap functions ------------------------------------------------------------- */

#ifndef HEAP_NO_SERIALIZE
#define HEAP_NO_SERIALIZE 0x00000001
#endif
#ifndef HEAP_GROWABLE
#define HEAP_GROWABLE 0x00000002
#endif
#ifndef HEAP_GENERATE_EXCEPTIONS
#define HEAP_GENERATE_EXCEPTIONS 0x00000004
#endif
#ifndef HEAP_ZERO_MEMORY
#define HEAP_ZERO_MEMORY 0x00000008
#endif
#ifndef HEAP_REALLOC_IN_PLACE_ONLY
#define HEAP_REALLOC_IN_PLACE_ONLY 0x00000010
#endif
#ifndef HEAP_TAIL_CHECKING_ENABLED
#define HEAP_TAIL_CHECKING_ENABLED 0x00000020
#endif
#ifndef HEAP_FREE_CHECKING_ENABLED
#define HEAP_FREE_CHECKING_ENABLED 0x00000040
#endif
#ifndef HEAP_DISABLE_COALESCE_ON_FREE
#define HEAP_DISABLE_COALESCE_ON_FREE 0x00000080
#endif
#ifndef HEAP_CREATE_ALIGN_16
#define HEAP_CREATE_ALIGN_16 0x00010000
#endif
#ifndef HEAP_CREATE_ENABLE_TRACING
#define HEAP_CREATE_ENABLE_TRACING 0x00020000
#endif
#ifndef HEAP_CREATE_ENABLE_EXECUTE
#define HEAP_CREATE_ENABLE_EXECUTE 0x00040000
#endif

/* PROCESS_HEAP_ENTRY::wFlags; none of them: a free block. */
#ifndef PROCESS_HEAP_REGION
#define PROCESS_HEAP_REGION 0x0001
#endif
#ifndef PROCESS_HEAP_UNCOMMITTED_RANGE
#define PROCESS_HEAP_UNCOMMITTED_RANGE 0x0002
#endif
#ifndef PROCESS_HEAP_ENTRY_BUSY
#define PROCESS_HEAP_ENTRY_BUSY 0x0004
#endif
#ifndef PROCESS_HEAP_SEG_ALLOC
#define PROCESS_HEAP_SEG_ALLOC 0x0008
#endif
#ifndef PROCESS_HEAP_ENTRY_MOVEABLE
#define PROCESS_HEAP_ENTRY_MOVEABLE 0x0010
#endif
#ifndef PROCESS_HEAP_ENTRY_DDESHARE
#define PROCESS_HEAP_ENTRY_DDESHARE 0x0020
#endif

/* --- What GetLastError() answers ------------------------------------------------------------- */

#ifndef NO_ERROR
#define NO_ERROR 0
#endif
#ifndef ERROR_SUCCESS
#define ERROR_SUCCESS 0
#endif
#ifndef ERROR_INVALID_HANDLE
#define ERROR_INVALID_HANDLE 6
#endif
#ifndef ERROR_NOT_ENOUGH_MEMORY
#define ERROR_NOT_ENOUGH_MEMORY 8
#endif
#ifndef ERROR_GEN_FAILURE
#define ERROR_GEN_FAILURE 31
#endif
#ifndef ERROR_NOT_SUPPORTED
#define ERROR_NOT_SUPPORTED 50
#endif
#ifndef ERROR_INVALID_PARAMETER
#define ERROR_INVALID_PARAMETER 87
#endif
#ifndef ERROR_INSUFFICIENT_BUFFER
#define ERROR_INSUFFICIENT_BUFFER 122
#endif
#ifndef ERROR_BUSY
#define ERROR_BUSY 170
#endif
#ifndef ERROR_NO_MORE_ITEMS
#define ERROR_NO_MORE_ITEMS 259
#endif
#ifndef ERROR_NOT_OWNER
#define ERROR_NOT_OWNER 288
#endif
#ifndef ERROR_NOACCESS
#define ERROR_NOACCESS 998
#endif

/* What HEAP_GENERATE_EXCEPTIONS raises; see loam_win32_set_exception_handler(). */
#ifndef STATUS_ACCESS_VIOLATION
#define STATUS_ACCESS_VIOLATION ((DWORD)0xC0000005)
#endif
#ifndef STATUS_NO_MEMORY
#define STATUS_NO_MEMORY ((DWORD)0xC0000017)
#endif

/* --- Results of _heapchk() ------------------------------------------------------------------- */

#ifndef _HEAPEMPTY
#define _HEAPEMPTY (-1)
#endif
#ifndef _HEAPOK
#define _HEAPOK (-2)
#endif
#ifndef _HEAPBADNODE
#define _HEAPBADNODE (-4)
#endif

/* --- Structures ------------------------------------------------------------------------------ */

typedef enum _HEAP_INFORMATION_CLASS {
  HeapCompatibilityInformation = 0,
  HeapEnableTerminationOnCorruption = 1,
  HeapOptimizeResources = 3
} HEAP_INFORMATION_CLASS;

#ifndef HEAP_OPTIMIZE_RESOURCES_CURRENT_VERSION
#define HEAP_OPTIMIZE_RESOURCES_CURRENT_VERSION 1
#endif
typedef struct _HEAP_OPTIMIZE_RESOURCES_INFORMATION {
  DWORD Version; /* HEAP_OPTIMIZE_RESOURCES_CURRENT_VERSION */
  DWORD Flags;   /* 0 */
} HEAP_OPTIMIZE_RESOURCES_INFORMATION, *PHEAP_OPTIMIZE_RESOURCES_INFORMATION;

/* One entry of HeapWalk(). The union is unnamed, as in the Windows headers; C99 needs the
 * extension. */
typedef struct _PROCESS_HEAP_ENTRY {
  PVOID lpData;    /* block, region or range; NULL starts a walk */
  DWORD cbData;    /* bytes of a block as they were asked for; 0xFFFFFFFF for 4 GiB and more */
  BYTE cbOverhead; /* bytes that the heap spends on the block beside cbData; 255 for 255 and more */
  BYTE iRegionIndex; /* which region it lies in; 255 for the 255th and later */
  WORD wFlags;       /* PROCESS_HEAP_* */
  __extension__ union {
    struct {
      HANDLE hMem; /* NULL: there are no moveable blocks */
      DWORD dwReserved[3];
    } Block;
    struct {
      DWORD dwCommittedSize;
      DWORD dwUnCommittedSize;
      LPVOID lpFirstBlock;
      LPVOID lpLastBlock; /* the first address behind the region */
    } Region;             /* with PROCESS_HEAP_REGION */
  };
} PROCESS_HEAP_ENTRY, *PPROCESS_HEAP_ENTRY, *LPPROCESS_HEAP_ENTRY;

/* What HeapSummary() fills in. Bytes. */
typedef struct _HEAP_SUMMARY {
  DWORD cb;            /* set to sizeof(HEAP_SUMMARY) before the call */
  SIZE_T cbAllocated;  /* in live blocks */
  SIZE_T cbCommitted;  /* readable and writable */
  SIZE_T cbReserved;   /* address space, committed memory included */
  SIZE_T cbMaxReserve; /* a fixed heap's limit; SIZE_MAX for a growable one */
} HEAP_SUMMARY, *PHEAP_SUMMARY, *LPHEAP_SUMMARY;

#endif
