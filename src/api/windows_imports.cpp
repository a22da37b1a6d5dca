// Windows: what calls through the import table reach. Some headers declare a run-time's function as
// imported, and the compiler then calls by the pointer `__imp_NAME`, which is here a pointer to the
// heap's own function. Without it the linker would take the run-time's, and find the name twice.
//
// No header is included: each would say what these names are.
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
