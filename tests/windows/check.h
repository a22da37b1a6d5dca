// The common part of the programs here: a check that prints where it failed, and ends the program.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::_Exit(1);                                                               \
    }                                                                              \
  } while (false)

// The compiler removes no call whose block goes through this function.
inline void* keep(void* block) {
  asm volatile("" : : "r"(block) : "memory");
  return block;
}
