// Writes an event: stores into the thread's own ring, and then one release store that publishes it.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "kernel.h"
#include "registers.h"
#include "ring.h"
#include "session.h"
#include "stamp.h"
#include "thread.h"

// Whatever stands between an event and the fast way: no ring yet, a ring that is full, a signal
// handler, a new time record, a size or pages that need a unit of their own.
LOAM_COLD void event_write_slow(uint64_t word0, uint64_t size, uint64_t touched);
// The same, with the stack that these registers begin.
LOAM_COLD void event_write_with_stack(uint64_t word0, uint64_t size, const Registers* registers);

static inline uint64_t event_word(uint32_t kind, uint32_t family, uint64_t value) {
  return (value & ((UINT64_C(1) << kKindShift) - 1)) | (uint64_t)kind << kKindShift |
         (uint64_t)family << kFamilyShift;
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
    const uint64_t stamp = stamp_now();
    if (LOAM_LIKELY(ring->position < ring->limit && (uint32_t)(stamp >> 32) == ring->high)) {
      Unit* unit = (Unit*)(void*)(ring->units + (ring->position & ring->mask));
      unit->word0 = word0;
      unit->word1 = stamp << 32 | size;
      ring->position += kUnitBytes;
      // Pairs with the fence between the drainer's reading of heads and of events.
      atomic_store_explicit(&ring->slot->head, ring->position, memory_order_release);
      atomic_signal_fence(memory_order_seq_cst);
      thread->writing = 0;
      return;
    }
    atomic_signal_fence(memory_order_seq_cst);
    thread->writing = 0;
  }
  event_write_slow(word0, size, 0);
}
