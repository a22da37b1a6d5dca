#define _GNU_SOURCE
#include "start.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "event.h"
#include "real.h"
#include "session.h"
#include "stack.h"
#include "thread.h"

// The fork gets a number, in the parent's ring and in the child's file. A fork by system call runs
// no handler, so the drainer learns of it only from the child.
static void before_fork(void) {
  self.fork = 0;
  if (atomic_load(recording) == 0) return;
  self.fork = session_next_fork();
  event_write(event_word(kForks, 0, self.fork), 0);
}

static void in_parent(void) { self.fork = 0; }

static void in_child(void) {
  const Thread* thread = &self;
  if (thread->writing != 0 && thread->ring.slot != NULL) {
    // A signal handler interrupted the writing of an event, and forked. This child will finish that
    // event, and the parent's ring is not mapped here. Anonymous pages take the event.
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    mmap(thread->ring.units, thread->ring.mask + 1, PROT_READ | PROT_WRITE, flags, -1, 0);
    mmap((void*)control, kControlBytes + (size_t)kSlots * kSlotBytes, PROT_READ | PROT_WRITE, flags,
         -1, 0);
  }
  session_forked(thread->fork);
}

void start_once(void) {
  thread_prepare();
  pthread_atfork(before_fork, in_parent, in_child);
}

__attribute__((constructor)) static void start(void) {
  // A heap that is to be recorded loads this library later (attach.c).
  if (!real_is_preloaded()) return;
  real_find();
  if (atomic_load(recording) == 0) (void)session_begin();
}

// Later destructors still free blocks, and are recorded.
__attribute__((destructor)) static void end(void) {
  if (atomic_load(recording) == 0) return;
  stack_end();
  atomic_store(&control->state, kEndedNormally);
}
