// What the programs here share: a check that says where it failed, and ends the program.
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

// The compiler leaves out no call whose block goes through here.
inline void* keep(void* block) {
  asm volatile("" : : "r"(block) : "memory");
  return block;
}
