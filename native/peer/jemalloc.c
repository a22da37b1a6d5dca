/* jemalloc, by mallctl(). Its `allocated` includes the blocks in threads' caches; newer versions
 * also publish these alone. Dirty and muzzy pages are free pages that it keeps for a while. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "figures.h"

static int (*mallctl_of_peer)(const char*, void*, size_t*, void*, size_t);

/* The merged figures of all arenas have this number (MALLCTL_ARENAS_ALL). */
#define ALL_ARENAS "stats.arenas.4096."

static bool get(const char* name, uint64_t* value) {
  size_t found = 0, length = sizeof found;
  if (mallctl_of_peer(name, &found, &length, NULL, 0) != 0 || length != sizeof found) return false;
  *value = found;
  return true;
}

bool find_jemalloc(char* version) {
  *(void**)&mallctl_of_peer = dlsym(RTLD_DEFAULT, "mallctl");
  const char* text = "";
  size_t length = sizeof text;
  if (!mallctl_of_peer || mallctl_of_peer("version", &text, &length, NULL, 0) != 0) return false;
  /* The text is like 5.3.0-0-g54eaed1d8b56; the number is enough. */
  snprintf(version, 32, "jemalloc %.*s", (int)strcspn(text, "-"), text);
  return true;
}

void read_jemalloc(struct figures* figures) {
  /* A new epoch updates the figures. */
  uint64_t epoch = 1;
  size_t length = sizeof epoch;
  mallctl_of_peer("epoch", &epoch, &length, &epoch, sizeof epoch);
  uint64_t page = 4096, allocated = 0, active = 0, value = 0, cached = 0;
  get("arenas.page", &page);
  const bool tells_cached = get(ALL_ARENAS "tcache_bytes", &cached);
  if (get("stats.allocated", &allocated)) {
    if (tells_cached) add_figure(figures, "cached_bytes", cached);
    add_figure(figures, "live_bytes", allocated > cached ? allocated - cached : 0);
    if (get("stats.active", &active)) {
      add_figure(figures, "span_free_bytes", active > allocated ? active - allocated : 0);
    }
  }
  uint64_t dirty = 0, muzzy = 0;
  if (get(ALL_ARENAS "pdirty", &dirty) && get(ALL_ARENAS "pmuzzy", &muzzy)) {
    add_figure(figures, "dirty_bytes", (dirty + muzzy) * page);
  }
  if (get("stats.metadata", &value)) add_figure(figures, "metadata_bytes", value);
  if (get("stats.mapped", &value)) add_figure(figures, "committed_bytes", value);
  if (get("stats.retained", &value)) add_figure(figures, "purged_bytes", value);
}
