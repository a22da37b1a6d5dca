/* tcmalloc, by the named properties of its MallocExtension. gperftools' tcmalloc and Google's have
 * different names for the same figures. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "figures.h"

static int (*get_of_gperftools)(const char*, size_t*);
static bool (*get_of_google)(const char*, size_t, size_t*);

static bool get(const char* name, uint64_t* value) {
  size_t found = 0;
  const bool is_known = get_of_gperftools ? get_of_gperftools(name, &found) != 0
                                          : get_of_google(name, strlen(name), &found);
  if (is_known) *value += found;
  return is_known;
}

bool find_tcmalloc(char* version) {
  *(void**)&get_of_gperftools = dlsym(RTLD_DEFAULT, "MallocExtension_GetNumericProperty");
  *(void**)&get_of_google = dlsym(RTLD_DEFAULT, "MallocExtension_Internal_GetNumericProperty");
  if (!get_of_gperftools && !get_of_google) return false;
  const char* (*tell)(int*, int*, const char**) = NULL;
  *(void**)&tell = dlsym(RTLD_DEFAULT, "tc_version");
  int major = 0, minor = 0;
  const char* patch = "";
  if (get_of_gperftools && tell) {
    tell(&major, &minor, &patch);
    snprintf(version, 32, "gperftools tcmalloc %d.%d", major, minor);
  } else {
    snprintf(version, 32, "tcmalloc");
  }
  return true;
}

/* Adds the sum of the properties that the peer knows. */
static void add_sum(struct figures* figures, const char* name, const char* const* parts) {
  uint64_t sum = 0;
  bool is_known = false;
  for (; *parts; ++parts) is_known |= get(*parts, &sum);
  if (is_known) add_figure(figures, name, sum);
}

void read_tcmalloc(struct figures* figures) {
  static const char* const live[] = {"generic.current_allocated_bytes", NULL};
  static const char* const cached[] = {"tcmalloc.thread_cache_free_bytes",
                                       "tcmalloc.transfer_cache_free_bytes",
                                       "tcmalloc.thread_cache_free",
                                       "tcmalloc.cpu_free",
                                       "tcmalloc.sharded_transfer_cache_free",
                                       "tcmalloc.transfer_cache_free",
                                       NULL};
  static const char* const between[] = {"tcmalloc.central_cache_free_bytes",
                                        "tcmalloc.central_cache_free", NULL};
  static const char* const dirty[] = {"tcmalloc.pageheap_free_bytes", NULL};
  static const char* const purged[] = {"tcmalloc.pageheap_unmapped_bytes", NULL};
  static const char* const records[] = {"tcmalloc.metadata_bytes", NULL};
  static const char* const committed[] = {"generic.heap_size", NULL};
  add_sum(figures, "live_bytes", live);
  add_sum(figures, "cached_bytes", cached);
  add_sum(figures, "span_free_bytes", between);
  add_sum(figures, "dirty_bytes", dirty);
  add_sum(figures, "purged_bytes", purged);
  add_sum(figures, "metadata_bytes", records);
  add_sum(figures, "committed_bytes", committed);
}
