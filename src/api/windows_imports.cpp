// Windows: the targets of calls through the import table. Some headers declare a run-time's
// function as imported. The compiler then calls it by the pointer `__imp_NAME`, which here points
// to the heap's own function. Without this file the linker would take the run-time's pointer, and
// find the name twice.
//
// No header is included, because headers declare these names themselves.
#define LOAM_OF_RUNTIME(name)                                \
  extern char loam_own_##name asm(#name);                    \
  extern void* const loam_import_##name asm("__imp_" #name); \
  __attribute__((used)) void* const loam_import_##name = &loam_own_##name

extern "C" {

LOAM_OF_RUNTIME(malloc);
LOAM_OF_RUNTIME(calloc);
LOAM_OF_RUNTIME(realloc);
LOAM_OF_RUNTIME(free);
LOAM_OF_RUNTIME(strdup);
LOAM_OF_RUNTIME(_strdup);
LOAM_OF_RUNTIME(wcsdup);
LOAM_OF_RUNTIME(_wcsdup);
LOAM_OF_RUNTIME(_msize);
LOAM_OF_RUNTIME(_expand);
LOAM_OF_RUNTIME(_recalloc);
LOAM_OF_RUNTIME(_heapchk);
LOAM_OF_RUNTIME(_heapmin);
LOAM_OF_RUNTIME(_get_sbh_threshold);
LOAM_OF_RUNTIME(_set_sbh_threshold);
LOAM_OF_RUNTIME(_aligned_malloc);
LOAM_OF_RUNTIME(_aligned_realloc);
LOAM_OF_RUNTIME(_aligned_recalloc);
LOAM_OF_RUNTIME(_aligned_offset_malloc);
LOAM_OF_RUNTIME(_aligned_offset_realloc);
LOAM_OF_RUNTIME(_aligned_offset_recalloc);
LOAM_OF_RUNTIME(_aligned_msize);
LOAM_OF_RUNTIME(_aligned_free);

}  // extern "C"
