// The common part of the programs here: a check that prints where it failed, and ends the program.
#pragma once

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      _Exit(1);                                                               \
    }                                                                         \
  } while (0)

// The compiler removes no call whose block goes through this function.
static inline void* keep(void* block) {
  __asm__ volatile("" : : "r"(block) : "memory");
  return block;
}
