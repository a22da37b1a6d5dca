// Random programs, and random changes of programs.
#ifndef LOAM_TESTS_FUZZ_MUTATE_H
#define LOAM_TESTS_FUZZ_MUTATE_H

#include "program.h"

namespace fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  /// SplitMix64.
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// 0 .. n - 1. pre: n != 0
  uint64_t below(uint64_t n) { return next() % n; }

 private:
  uint64_t state_;
};

Operation random_operation(Random& random);
Program random_program(Random& random, size_t operations);
/// Makes a few changes: operations are inserted, removed, moved or doubled, and arguments change.
void mutate(Program* program, Random& random, size_t most_operations);
/// Inserts a piece of one program into the other.
Program cross(const Program& one, const Program& other, Random& random, size_t most_operations);

}  // namespace fuzz

#endif
