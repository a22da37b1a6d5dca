// The lease on shared stamps. The thread that holds it may give an event the stamp of the event
// before it, because no other thread has written an event in between. At most one thread of a
// process holds it. At the beginning the process's first thread does.
//
//   free --- a thread without it sees a new heartbeat ---> held
//   held --- another thread writes an event -------------> free
//
// Control.lease: 63..32 number of grants | 31..0 the holder's slot + 1; 0: free. The number tells a
// thread that its lease was freed, even if the same slot was granted another one since.
//
// Order. Let the holder's event x share the stamp s, and let x depend on an event y of another
// thread. That thread read its stamp, then looked at the lease, and then published y.
// (1) Had it found this lease, it would have freed it before it published y. The holder would have
//     seen that before x, and read a new stamp. So it looked before the lease was granted.
// (2) So stamp(y) < s: the holder shares no stamp before it sees another heartbeat than at the
//     grant.
// (3) y may be published at any later time. The drainer therefore reads the holder's head before
//     all other heads (ring.h): if it sees x, it sees y. It knows the holder, because it writes no
//     heartbeat in a pass. A thread that got the lease in this pass shares no stamp in this pass.
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "kernel.h"
#include "session.h"
#include "thread.h"

// Held by the first slot's owner before any event is written. Every other thread finds it, so part
// (1) of the proof is enough.
#define LOAM_FIRST_LEASE (UINT64_C(1) << 32 | 1)

// Call when the heartbeat is not `thread->beat`. Takes the lease if it is free, and sets
// `thread->beat`.
LOAM_COLD void lease_beat(Thread* thread, uint64_t beat);
// Frees this lease of another thread.
LOAM_COLD void lease_free(uint64_t lease);
// Call when the thread has changed its ring.
void lease_move(Thread* thread);

// Call after the stamp of an event is read, and before the event is published.
static inline void lease_look(const Thread* thread) {
  atomic_signal_fence(memory_order_seq_cst);
  const uint64_t lease = atomic_load_explicit(&control->lease, memory_order_relaxed);
  if (LOAM_UNLIKELY((uint32_t)lease != 0 && lease != thread->lease)) lease_free(lease);
}
