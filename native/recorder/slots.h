// The rings of this process, and which of them are in use. A thread that ends releases its ring,
// and the next thread goes on behind its last event. So ten thousand threads one after the other
// need one ring.
//
// Lock-free, so that a signal handler may claim a ring while its thread claims one.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ring.h"

// An end of a ring: where its owner writes.
typedef struct Ring {
  Slot* slot;  // null: none
  char* units;
  uint64_t mask;      // its bytes - 1
  uint64_t position;  // bytes written, ever
  uint64_t limit;     // up to here may be written without looking
  uint32_t high;      // high half of the last kTime record's stamp
  uint32_t unused;
} Ring;

// Gives the caller a ring of its own. False: none is to be had, and `*error` says why.
bool slots_claim(bool is_large, Ring* ring, int* error);
void slots_release(Ring* ring);
bool slots_may_have_large(void);
// In a child: the parent's rings are not there.
void slots_forget(void);
// Unmaps all rings. pre: no thread writes
void slots_unmap(void);
