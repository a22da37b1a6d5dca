// The system under the fuzzed heap. Its memory is real, but its clock stands still until the
// program moves it. The program sets its page sizes and refusals. No state of one run remains for
// the next, so an input always does the same.
//
// The system and the heap's layers are in one library (fuzz_heap), whose malloc overrides nothing:
// the fuzzer's own memory is the system's. reset() restores the library's variables to their values
// at load, and unmaps what was mapped since.
#ifndef LOAM_TESTS_FUZZ_SYSTEM_H
#define LOAM_TESTS_FUZZ_SYSTEM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace fuzz {

struct System {
  /// Gives a heap as after loading, with the options (NAME=VALUE, `count` of them) and the page
  /// size in bytes. Other threads that used the heap must have ended. The strings must live until
  /// the next reset.
  void (*reset)(const char* const* options, size_t count, size_t granularity);
  void (*advance_ms)(uint64_t ms);
  /// Refuses `count` requests for memory or purges, after `after` further ones.
  void (*refuse)(uint64_t after, uint64_t count);
  /// Requests refused since reset().
  uint64_t (*refusals)();
  /// Pretends that another thread holds the locks of all bins, until a thread has to wait for one,
  /// or until release().
  void (*contend)();
  void (*release)();
  /// Does what the system does at the end of the calling thread.
  void (*end_thread)();
  /// fork(), with the heap's handlers around it. release() first.
  pid_t (*fork)();
  /// Lines that the heap wrote to standard error since reset().
  uint64_t (*lines)();
  /// Whether the call that reports a thread's end was refused. The threads' caches then stay.
  bool (*unhooked)();
};

}  // namespace fuzz

#endif
