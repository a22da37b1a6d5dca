#define _GNU_SOURCE
#include "start.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "event.h"
#include "real.h"
#include "session.h"
#include "stack.h"
#include "thread.h"
#include "touched.h"

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
    kernel_map_over(thread->ring.units, thread->ring.mask + 1);
    kernel_map_over((void*)control, kControlBytes + (size_t)kSlots * kSlotBytes);
  }
  session_forked(thread->fork);
}

// A filter of system calls that the program sets from now on. Of one that comes by the newer call
// seccomp() the drainer tells, some milliseconds later.
LOAM_EXPORT int prctl(int option, ...) {
  va_list words;
  va_start(words, option);
  unsigned long word[4];
  for (int i = 0; i < 4; ++i) word[i] = va_arg(words, unsigned long);
  va_end(words);
  if (option == PR_SET_SECCOMP) calls_forbid();
  return (int)syscall(SYS_prctl, option, word[0], word[1], word[2], word[3]);
}

void start_once(void) {
  if (kernel_is_filtered()) calls_forbid();
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
