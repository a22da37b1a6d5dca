// A thread's part: its ring, and its present activity.
//
// `writing` is the frame of the function that writes an event. A signal handler that interrupts
// this function finds it set, and writes through a ring that it claims for its one event. `inside`
// is the frame of the outermost hook while the real function runs. Hooks that the real function
// calls (realloc -> malloc) are parts of it and are not logged.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slots.h"

enum { kNoBeat = 1 };

typedef struct Thread {
  // Every event reads these: two lines of the cache.
  Ring ring;
  uint32_t generation;  // of the ring; if *recording differs, the ring is not this process's
  uint8_t family;       // of the operator new that called the next hook, + 1; 0: none did
  uintptr_t writing;
  uintptr_t inside;
  // The stamp of the last event, in the place of word1, and the drainer's heartbeat at that time.
  // With kNoBeat the next event takes a new stamp (event.h).
  uint64_t stamp;
  uint64_t beat;
  uint64_t lease;       // the last one that this thread got (lease.h); 0: none
  int64_t until_stack;  // requested bytes up to the next stack; below 0: it is due

  uint64_t granted;  // the heartbeat when the thread got its lease
  uint64_t random;   // state of the generator that draws the next distance
  uint64_t dropped;  // events since the last one that found room
  uint32_t ordinal;  // of the thread in this process, from 1
  uint32_t named;    // the generation of the ordinal
  uint32_t thread;   // the system's number of it
  uint32_t rounds;   // of the key's destructor
  uint32_t fork;     // number of the fork in which this thread is
  uint32_t medium;   // blocks of medium size so far, for the sample of touched pages
  bool has_key;
  bool has_ended;
  bool is_drawn;  // whether until_stack was drawn, for this process's recording
} Thread;

_Static_assert(offsetof(Thread, granted) <= 128, "what every event reads is in two lines");

extern LOAM_HIDDEN _Thread_local _Alignas(64) Thread self
    __attribute__((tls_model("initial-exec")));

// Call once in a process, before the first event. Makes the key whose destructor ends a thread.
void thread_prepare(void);
// Gives the thread a ring, if this process records; otherwise returns false.
bool thread_begin(Thread* thread);
// Writes a time record: the thread, and the time.
void thread_write_time(const Thread* thread, Ring* ring, uint64_t stamp);
// Claims a ring for one event of a thread that must not use its own ring; false if there is none.
bool thread_borrow(Thread* thread, Ring* ring);
