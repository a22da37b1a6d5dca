#include "lease.h"

#include <stdbool.h>

#include "slots.h"

// Replaces a lease that is free or the thread's own.
static bool take(Thread* thread, uint64_t from) {
  const uint64_t slot = (uint64_t)(thread->ring.slot - slots);
  const uint64_t lease = ((from >> 32) + 1) << 32 | (slot + 1);
  if (!atomic_compare_exchange_strong(&control->lease, &from, lease)) return false;
  thread->lease = lease;
  // Both are sequentially consistent, and pair with the drainer's fence between a heartbeat and its
  // look at the lease: if it did not see this lease in a pass, this is at least that pass's
  // heartbeat.
  thread->granted = atomic_load(&session->heartbeat);
  return true;
}

void lease_beat(Thread* thread, uint64_t beat) {
  const uint64_t lease = atomic_load_explicit(&control->lease, memory_order_relaxed);
  const bool is_held = lease == thread->lease ||
                       ((uint32_t)lease == 0 && thread->ring.slot != NULL && take(thread, lease));
  // With kNoBeat, the next event takes a new stamp and comes here again.
  thread->beat = is_held && thread->granted == beat ? kNoBeat : beat;
}

void lease_free(uint64_t lease) {
  // A failure says that it was free meanwhile, which is enough. Relaxed: the event is published
  // after this, by a release.
  atomic_compare_exchange_strong_explicit(&control->lease, &lease, lease >> 32 << 32,
                                          memory_order_relaxed, memory_order_relaxed);
}

void lease_move(Thread* thread) {
  // Every other thread's look finds the first lease, so nothing depends on its slot.
  if (thread->lease == LOAM_FIRST_LEASE) return;
  thread->beat = kNoBeat;
  if (atomic_load_explicit(&control->lease, memory_order_relaxed) == thread->lease)
    (void)take(thread, thread->lease);
}
