// The system under the fuzzed heap. Its memory is real, but its clock stands still until the
// program moves it, its page sizes and refusals are those of the program, and nothing of one run
// remains for the next. So an input always does the same.
//
// Everything lies in one library (fuzz_heap) together with the heap's layers, whose malloc
// overrides nothing: the fuzzer's own memory is the system's. reset() puts the library's variables
// back to what they were when it was loaded, and unmaps what was mapped since.
#ifndef LOAM_TESTS_FUZZ_SYSTEM_H
#define LOAM_TESTS_FUZZ_SYSTEM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace fuzz {

struct System {
  /// A heap as after loading, with the options (NAME=VALUE, `count` of them) and the page size in
  /// bytes. Other threads that used the heap must be gone. The strings must live until the next
  /// reset.
  void (*reset)(const char* const* options, size_t count, size_t granularity);
  void (*advance_ms)(uint64_t ms);
  /// Refuses `count` requests for memory or purges, from the one after `after` further ones.
  void (*refuse)(uint64_t after, uint64_t count);
  /// Requests refused since reset().
  uint64_t (*refusals)();
  /// Somebody seems to hold the locks of all bins, until a thread has to wait for one, or
  /// release().
  void (*contend)();
  void (*release)();
  /// What the end of the calling thread does.
  void (*end_thread)();
  /// fork(), with the heap's handlers around it. release() first.
  pid_t (*fork)();
  /// Lines that the heap wrote to standard error since reset().
  uint64_t (*lines)();
  /// Whether the call that lets a thread's end be noticed was refused: what threads cache stays
  /// then.
  bool (*unhooked)();
};

}  // namespace fuzz

#endif
