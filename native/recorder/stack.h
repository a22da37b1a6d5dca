// Stacks of a sample of blocks. A block of s bytes is chosen with probability 1 - exp(-s/m), where
// m is the session's stack_bytes. The distance from one chosen block to the next is exponential in
// requested bytes, and each thread draws its own. So a chosen block represents 1/p blocks and s/p
// bytes, whatever its size, and sums of these are free of bias.
//
// The recorder copies the stack itself; the tool unwinds it outside the process. Programs are built
// without frame pointers, and unwinding by tables inside the process would need locks and memory.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "event.h"
#include "kernel.h"
#include "thread.h"

// Writes the event of a block that may be chosen.
LOAM_COLD void stack_write(uint64_t word0, uint64_t size);
// At the end of the process, writes its mappings for stacks that are not unwound yet.
void stack_end(void);

// Writes the event of a block that has been handed out. Where no stacks are sampled, the distance
// is too large for any program to reach its end.
static inline void stack_or_event(uint64_t word0, uint64_t size) {
  if (LOAM_UNLIKELY((self.until_stack -= (int64_t)size) < 0))
    stack_write(word0, size);
  else
    event_write(word0, size);
}
