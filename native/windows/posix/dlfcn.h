// dlsym() for the names that the workloads and tests look up. A Windows program has no such table.
#pragma once

#include <loam/loam.h>
#include <loam/stats.h>
#include <stddef.h>
#include <string.h>

#define RTLD_DEFAULT NULL

#if !defined(LOAM_POSIX_SYSTEM_HEAP)
extern void loam_posix_delete(void*) __asm__("_ZdlPv");
extern void loam_posix_delete_sized(void*, size_t) __asm__("_ZdlPvy");
#endif

static inline void* dlsym(void* where, const char* name) {
  (void)where;
  static const struct {
    const char* name;
    void* address;
  } known[] = {
    {"malloc_trim", (void*)&malloc_trim},
#if !defined(LOAM_POSIX_SYSTEM_HEAP)
    {"_ZdlPv", (void*)&loam_posix_delete},
    {"_ZdlPvm", (void*)&loam_posix_delete_sized},
    {"loam_heap_create", (void*)&loam_heap_create},
    {"loam_alloc", (void*)&loam_alloc},
    {"loam_free", (void*)&loam_free},
    {"loam_heap_destroy", (void*)&loam_heap_destroy},
    {"loam_set_mode", (void*)&loam_set_mode},
    {"loam_stats", (void*)&loam_stats},
#endif
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (strcmp(known[i].name, name) == 0) return known[i].address;
  }
  return NULL;
}
