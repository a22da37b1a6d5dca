// The common part of the programs of this folder: their statements about themselves (see drain.py),
// and checks.
#pragma once

#include <stdio.h>
#include <stdlib.h>

static inline void expect_size(size_t size, unsigned long allocated, unsigned long freed) {
  printf("expect size %zu allocated %lu freed %lu\n", size, allocated, freed);
}

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)
