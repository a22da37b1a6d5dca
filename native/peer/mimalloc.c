/* mimalloc, by mi_process_info(): its committed bytes. A release build counts no live blocks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "figures.h"

static void (*info)(size_t*, size_t*, size_t*, size_t*, size_t*, size_t*, size_t*, size_t*);

bool find_mimalloc(char* version) {
  *(void**)&info = dlsym(RTLD_DEFAULT, "mi_process_info");
  int (*tell)(void) = NULL;
  *(void**)&tell = dlsym(RTLD_DEFAULT, "mi_version");
  if (!info || !tell) return false;
  /* 209 is 2.0.9, and 30302 is 3.3.2. */
  const int number = tell();
  if (number >= 10000) {
    snprintf(version, 32, "mimalloc %d.%d.%d", number / 10000, number / 100 % 100, number % 100);
  } else {
    snprintf(version, 32, "mimalloc %d.%d.%d", number / 100, number / 10 % 10, number % 10);
  }
  return true;
}

void read_mimalloc(struct figures* figures) {
  size_t elapsed = 0, user = 0, system = 0, resident = 0, peak = 0, committed = 0, most = 0,
         faults = 0;
  info(&elapsed, &user, &system, &resident, &peak, &committed, &most, &faults);
  add_figure(figures, "committed_bytes", committed);
}
