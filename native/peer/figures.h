/* The figures that another allocator (a peer) publishes about itself, under the names of Loam's
 * counters (formats/counters.toml). An unknown figure is left out: no value stands for "unknown".
 *
 * Each peer has one file, which finds the peer's own functions by name and adds their figures. */
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

/* A peer adds the same figures in the same order each time. */
void add_figure(struct figures* figures, const char* name, uint64_t value);

/* Whether this process's allocator is that peer. `version`: 32 bytes for its name and version. */
bool find_jemalloc(char* version);
bool find_tcmalloc(char* version);
bool find_mimalloc(char* version);

void read_jemalloc(struct figures* figures);
void read_tcmalloc(struct figures* figures);
void read_mimalloc(struct figures* figures);

#endif
