// Writes an event: plain stores put it into the thread's own ring, and one release store publishes
// it.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "kernel.h"
#include "lease.h"
#include "registers.h"
#include "ring.h"
#include "session.h"
#include "stamp.h"
#include "thread.h"

// For every event that cannot take the fast way: there is no ring yet, the ring is full, a signal
// handler writes, a time record is due, or a size or a number of pages needs a unit of its own.
LOAM_COLD void event_write_slow(uint64_t word0, uint64_t size, uint64_t touched);
// The same, with the stack that begins at these registers.
LOAM_COLD void event_write_with_stack(uint64_t word0, uint64_t size, const Registers* registers);

static inline uint64_t event_word(uint32_t kind, uint32_t family, uint64_t value) {
  return (value & ((UINT64_C(1) << kKindShift) - 1)) | (uint64_t)kind << kKindShift |
         (uint64_t)family << kFamilyShift;
}

// The most further events that share a stamp.
enum { kShareStamp = 16 };

// Writes an event whose stamp cannot be shared: reads a new one, or goes the slow way. Returns
// `block`, so that a hook can end with this call.
__attribute__((noinline)) void* event_write_stamped(uint64_t word0, uint64_t size, void* block);

// pre: the unit has its place below the ring's limit
static inline void event_put(Ring* ring, uint64_t word0, uint64_t word1) {
  Unit* unit = (Unit*)(void*)(ring->units + (ring->position & ring->mask));
  unit->word0 = word0;
  unit->word1 = word1;
  ring->position += kUnitBytes;
  // Pairs with the drainer's fence between its reads of heads and of events.
  atomic_store_explicit(&ring->slot->head, ring->position, memory_order_release);
}

// Writes an event that shares the stamp of the thread's last event; false if it may not.
//
// Reading the counter takes longer than the rest of an event, and the order of a single ring needs
// no stamps. So while only one thread writes events, an event has the stamp of the event before it
// (lease.h). A new stamp is read after kShareStamp events, and after the drainer's heartbeat. So
// the time of an event after a pause is wrong by at most one heartbeat (some milliseconds).
//
// A signal handler's events are in another ring. They clear `beat`, and this thread sets `beat`
// before it reads the stamp. So no event after them has a stamp from before them.
//
// A thread without a ring has the limit 0, and a process that is not recorded has no session.
static inline __attribute__((always_inline)) bool event_write_shared(uint64_t word0,
                                                                     uint64_t size) {
  Thread* thread = &self;
  if (LOAM_UNLIKELY(thread->generation != atomic_load_explicit(recording, memory_order_relaxed) ||
                    thread->writing != 0 || size >> 32 != 0))
    return false;
  thread->writing = (uintptr_t)__builtin_frame_address(0);
  // A handler in this thread sees `writing` before any part of the event changes.
  atomic_signal_fence(memory_order_seq_cst);
  Ring* ring = &thread->ring;
  const bool shares =
      ring->position < ring->shared &&
      thread->beat == atomic_load_explicit(&session->heartbeat, memory_order_relaxed) &&
      thread->lease == atomic_load_explicit(&control->lease, memory_order_relaxed);
  if (LOAM_LIKELY(shares)) event_put(ring, word0, thread->stamp | size);
  atomic_signal_fence(memory_order_seq_cst);
  thread->writing = 0;
  return shares;
}

static inline void event_write(uint64_t word0, uint64_t size) {
  if (LOAM_UNLIKELY(!event_write_shared(word0, size))) (void)event_write_stamped(word0, size, NULL);
}
