/* mimalloc's names for functions that every malloc has, mapped to the standard functions, so that
   its API test compiles unedited and tests the preloaded library.  Written from scratch.

   Functions without a standard counterpart (heaps, alignment at an offset) are declared so that
   the file compiles.  They end the program if reached, and testhelper.h leaves them out by name. */

#ifndef LOAM_CONFORMANCE_MIMALLOC_H
#define LOAM_CONFORMANCE_MIMALLOC_H

#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* mimalloc treats alignments below this like any other. Here it is only a number. */
#define MI_ALIGNMENT_MAX ((size_t)16 << 20)

#define mi_malloc malloc
#define mi_calloc calloc
#define mi_realloc realloc
#define mi_reallocarray reallocarray
#define mi_free free
#define mi_posix_memalign posix_memalign
#define mi_memalign memalign
#define mi_usable_size malloc_usable_size
#define mi_realpath realpath
#define mi_malloc_aligned(size, alignment) memalign((alignment), (size))

/* Only the alignment of these blocks is tested, so they are not cleared: clearing the largest
   ones would take gigabytes of writes. */
#define mi_zalloc_aligned(size, alignment) memalign((alignment), (size))

enum { mi_option_verbose };
static inline void mi_option_disable(int option) { (void)option; }

typedef struct mi_heap_s mi_heap_t;

static inline _Noreturn void shim_reached(const char* name) {
  fprintf(stderr, "%s: no standard function does this; testhelper.h should leave it out\n", name);
  abort();
}
#define mi_malloc_aligned_at(size, alignment, offset) \
  ((void)(size), (void)(alignment), (void)(offset), shim_reached("mi_malloc_aligned_at"), (void*)0)
#define mi_heap_new() (shim_reached("mi_heap_new"), (mi_heap_t*)0)
#define mi_heap_destroy(heap) ((void)(heap), shim_reached("mi_heap_destroy"))
#define mi_heap_delete(heap) ((void)(heap), shim_reached("mi_heap_delete"))
#define mi_heap_malloc_aligned(heap, size, alignment) ((void)(heap), memalign((alignment), (size)))
#define mi_heap_malloc_tp(heap, type) ((void)(heap), (type*)malloc(sizeof(type)))
#define mi_heap_contains_block(heap, block) ((void)(heap), (block) != NULL)

#endif
