/* The alignment that every block of at least that size has: the ABI's, which is also what the C
   library's own malloc gives on 64-bit machines. */
#include <stddef.h>
#define MALLOC_ALIGNMENT _Alignof(max_align_t)
#define MALLOC_ALIGN_MASK (MALLOC_ALIGNMENT - 1)
#define SIZE_SZ sizeof(size_t)
#define INTERNAL_SIZE_T size_t
