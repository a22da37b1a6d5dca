// What one run of the model counts, and the calls by which a program's threads take part in it.
//
// An allocator that is compiled with -fsanitize=thread calls __tsan_read8(), __tsan_write8(),
// __tsan_atomic64_load() and so on. hooks.cpp defines these calls, and the C library's calls that
// wait, sleep, tell the time or give memory back (wrapped.txt). Threads that did not join() pass
// through uncounted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler.h"

namespace cores {

struct Traffic {
  uint64_t read_moved, write_moved, invalidated;
  uint64_t lines() const { return read_moved + write_moved + invalidated; }
};

struct Counts {
  uint64_t accesses, changes, failed_changes;  // changes: atomic read-modify-writes
  uint64_t sections, collisions, waits;        // of locks; waits in the kernel, and yields
  Traffic allocator, program;                  // the code that the instruction belongs to
};

/// A place in the allocator's code: the lines that it moved, and the lock sections that it ends.
struct Place {
  uintptr_t code;
  Traffic traffic;
  uint64_t sections, collisions;
};

/// One model at a time.
class Model {
 public:
  static void begin(Scheduler& scheduler);
  static void join(unsigned core);
  static void leave();
  static void count(bool on);
  static Counts counts();
  static std::vector<Place> places();  // the most first

  /// Call when the program itself reads or writes a word of a block.
  static void touch(void* word, bool write);
};

}  // namespace cores
