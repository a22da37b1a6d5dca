// The rings of this process, and the slots that are in use. A thread that ends releases its ring,
// and the next thread goes on after its last event. So ten thousand threads one after the other
// need one ring.
//
// Lock-free, so that a signal handler may claim a ring while its thread claims one.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernel.h"
#include "ring.h"

// The owner's view of a ring: the place where it writes.
typedef struct Ring {
  Slot* slot;  // null: none
  char* units;
  uint64_t mask;      // its bytes - 1
  uint64_t position;  // all bytes written so far
  uint64_t limit;     // the owner may write up to here without a look at the drainer
  uint64_t shared;    // events below this position may share the thread's stamp; at most `limit`
  uint32_t high;      // high half of the last kTime record's stamp
  uint32_t unused;
} Ring;

// Gives the caller a ring of its own. False when there is none; `*error` has the reason.
bool slots_claim(bool is_large, Ring* ring, int* error);
void slots_release(Ring* ring);
bool slots_may_have_large(void);
// Call in a child, where the parent's rings are not mapped.
void slots_forget(void);
// Unmaps all rings. pre: no thread writes
void slots_unmap(void);
