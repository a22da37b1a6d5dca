/* What another allocator tells of itself, under the names of Loam's counters
 * (formats/counters.toml). What it does not tell is not there: nothing stands for unknown.
 *
 * One file a peer; each looks for the peer's own functions by name and adds what they say. */
#ifndef LOAM_PEER_FIGURES_H
#define LOAM_PEER_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

enum { MOST_FIGURES = 16 };

struct figures {
  int count;
  const char* names[MOST_FIGURES];
  uint64_t values[MOST_FIGURES];
};

/* The same peer adds the same figures in the same order each time. */
void add_figure(struct figures* figures, const char* name, uint64_t value);

/* Whether this process's allocator is that one. `version`: 32 bytes, its name and version. */
bool find_jemalloc(char* version);
bool find_tcmalloc(char* version);
bool find_mimalloc(char* version);

void read_jemalloc(struct figures* figures);
void read_tcmalloc(struct figures* figures);
void read_mimalloc(struct figures* figures);

#endif
