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

// The stamp of the thread's next event. Reading the counter takes longer than the rest of an event,
// and the order of a single ring needs no stamps. So while only one thread writes events, an event
// has the stamp of the event before it (lease.h). A new stamp is read after kShareStamp events, and
// after the drainer's heartbeat. So the time of an event after a pause is wrong by at most one
// heartbeat (some milliseconds).
//
// A signal handler's events are in another ring. They clear `beat`, and this thread sets `beat`
// before it reads the stamp. So no event after them has a stamp from before them.
static inline uint64_t stamp_next(Thread* thread) {
  const uint64_t beat = atomic_load_explicit(&session->heartbeat, memory_order_relaxed);
  if (LOAM_LIKELY(thread->beat == beat && thread->same < kShareStamp &&
                  atomic_load_explicit(&control->lease, memory_order_relaxed) == thread->lease)) {
    ++thread->same;
    return thread->stamp;
  }
  thread->same = 0;
  if (LOAM_UNLIKELY(thread->beat != beat)) lease_beat(thread, beat);
  atomic_signal_fence(memory_order_seq_cst);
  const uint64_t stamp = thread->stamp = stamp_now();
  lease_look(thread);
  return stamp;
}

// A size of 32 bits or more goes the slow way.
static inline void event_write(uint64_t word0, uint64_t size) {
  Thread* thread = &self;
  if (LOAM_LIKELY(thread->generation == atomic_load_explicit(recording, memory_order_relaxed) &&
                  thread->writing == 0 && size >> 32 == 0)) {
    thread->writing = (uintptr_t)__builtin_frame_address(0);
    // A handler in this thread sees `writing` before any part of the event changes.
    atomic_signal_fence(memory_order_seq_cst);
    Ring* ring = &thread->ring;
    // A thread without a ring has the limit 0, and a process that is not recorded has no session.
    if (LOAM_LIKELY(ring->position < ring->limit)) {
      const uint64_t stamp = stamp_next(thread);
      if (LOAM_LIKELY((uint32_t)(stamp >> 32) == ring->high)) {
        Unit* unit = (Unit*)(void*)(ring->units + (ring->position & ring->mask));
        unit->word0 = word0;
        unit->word1 = stamp << 32 | size;
        ring->position += kUnitBytes;
        // Pairs with the drainer's fence between its reads of heads and of events.
        atomic_store_explicit(&ring->slot->head, ring->position, memory_order_release);
        atomic_signal_fence(memory_order_seq_cst);
        thread->writing = 0;
        return;
      }
    }
    atomic_signal_fence(memory_order_seq_cst);
    thread->writing = 0;
  }
  event_write_slow(word0, size, 0);
}
