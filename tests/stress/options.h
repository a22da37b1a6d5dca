// The command line of the stress program.
#ifndef LOAM_TESTS_STRESS_OPTIONS_H
#define LOAM_TESTS_STRESS_OPTIONS_H

#include <cstdint>

namespace stress {

struct Options {
  uint64_t seed = 0;        // 0: taken from the clock, and printed
  uint64_t seconds = 0;     // stop after this long, or
  uint64_t operations = 0;  // after so many (the only way to be deterministic)
  uint64_t threads = 3;
  uint64_t slots = 20'000;
  uint64_t live_mib = 192;  // most bytes live at once, about
  uint64_t limit_mib = 0;   // RLIMIT_AS: allocations may then fail, cleanly
  bool forks = true;
  bool trace = false;  // print each operation (one thread)
};

// Reads the command line. On a mistake it prints what is wrong and exits with status 2.
Options parse_options(int argc, char** argv);

}  // namespace stress

#endif
