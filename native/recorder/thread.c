#define _GNU_SOURCE
#include "thread.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>

#include "event.h"
#include "kernel.h"
#include "lease.h"
#include "session.h"
#include "stamp.h"

#ifndef PTHREAD_DESTRUCTOR_ITERATIONS
#define PTHREAD_DESTRUCTOR_ITERATIONS 4
#endif

_Thread_local _Alignas(64) Thread self __attribute__((tls_model("initial-exec")));

static pthread_key_t key;
static bool has_key;

// Other keys' destructors free blocks. This one asks to be called again until the last round, so
// that most of them have run.
static void end_thread(void* value) {
  Thread* thread = value;
  if (++thread->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(key, thread);
    return;
  }
  if (thread->ring.slot == NULL || thread->generation != atomic_load(recording)) return;
  event_write((uint64_t)kThreadEnds << kKindShift, 0);
  thread->has_ended = true;
  slots_release(&thread->ring);
}

void thread_prepare(void) { has_key = pthread_key_create(&key, end_thread) == 0; }

// In a child: clears what its thread stored about the parent's ring.
static void forget(Thread* thread) {
  thread->ring = (Ring){0};
  thread->generation = 0;
  thread->writing = 0;
  thread->beat = kNoBeat;
  thread->lease = 0;
  thread->dropped = 0;
  thread->has_ended = false;
}

static void name_thread(Thread* thread) {
  const uint32_t current = atomic_load(recording);
  if (thread->named == current) return;
  thread->named = current;
  thread->ordinal = atomic_fetch_add(&control->threads, 1) + 1;
  thread->thread = kernel_thread();
  thread->until_stack = 0;
  thread->is_drawn = false;
}

void thread_write_time(const Thread* thread, Ring* ring, uint64_t stamp) {
  Unit* first = (Unit*)(void*)(ring->units + (ring->position & ring->mask));
  Unit* second = (Unit*)(void*)(ring->units + ((ring->position + kUnitBytes) & ring->mask));
  first->word0 = (uint64_t)kTime << kKindShift;
  first->word1 = stamp;
  second->word0 = kernel_monotonic();
  second->word1 = (uint64_t)thread->ordinal << 32 | thread->thread;
  ring->high = (uint32_t)(stamp >> 32);
  ring->position += 2 * kUnitBytes;
}

bool thread_begin(Thread* thread) {
  if (atomic_load(recording) == 0 && !session_begin()) return false;
  const uint32_t current = atomic_load(recording);
  if (current == 0) return false;
  if (thread->generation != current && thread->generation != 0) forget(thread);
  if (thread->ring.slot != NULL || thread->has_ended) return true;
  const int saved = errno;
  // This comes first, because it may call malloc, which must not come back to this place.
  if (has_key && !thread->has_key) {
    thread->has_key = true;
    thread->rounds = 0;
    pthread_setspecific(key, thread);
    if (thread->ring.slot != NULL) return errno = saved, true;
  }
  int error = 0;
  Ring ring;
  if (!slots_claim(false, &ring, &error)) {
    session_off("no ring for a thread", error);
    return errno = saved, false;
  }
  name_thread(thread);
  if (thread->ordinal == 1 && ring.slot == slots) {
    thread->lease = LOAM_FIRST_LEASE;
    thread->granted = kNoBeat;
  }
  thread->ring = ring;
  atomic_signal_fence(memory_order_seq_cst);
  thread->generation = current;
  event_write((uint64_t)kThreadBegins << kKindShift, 0);
  errno = saved;
  return true;
}

bool thread_borrow(Thread* thread, Ring* ring) {
  if (atomic_load(recording) == 0 && !session_begin()) return false;
  int error = 0;
  if (!slots_claim(false, ring, &error)) {
    session_off("no ring for an event", error);
    return false;
  }
  name_thread(thread);
  return true;
}
