#include "stack.h"

#include <errno.h>

#include "registers.h"
#include "session.h"
#include "touched.h"

// The generation whose mappings were written to the file.
static _Atomic uint32_t mapped;

// Splitmix: 32 bits of a generator whose whole state is a counter.
static uint32_t draw_uniform(Thread* thread) {
  uint64_t bits = thread->random += UINT64_C(0x9e3779b97f4a7c15);
  bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
  return (uint32_t)(bits >> 32);
}

// An exponential distance, by von Neumann's comparison of uniform numbers: exact, and without a
// logarithm. A run u1 > u2 > ... that ends at an even place is as probable as exp(-u1); one that
// ends at an odd place adds 1 and begins anew.
static int64_t draw_distance(Thread* thread, uint64_t mean) {
  for (uint64_t whole = 0;; ++whole) {
    const uint32_t first = draw_uniform(thread);
    uint32_t last = first;
    bool is_even = false;
    for (;;) {
      const uint32_t next = draw_uniform(thread);
      is_even = !is_even;
      if (next >= last) break;
      last = next;
    }
    if (is_even) return (int64_t)(whole * mean + (mean * first >> 32));
  }
}

// Whether this block is chosen. Its size was subtracted from the distance already, unless there was
// no distance yet.
static bool is_chosen(Thread* thread, uint64_t size) {
  // This is a handler that interrupted the thread's first event.
  if (!thread->is_drawn && thread->writing != 0) return false;
  const bool was_drawn = thread->is_drawn;
  if (!thread_begin(thread)) {
    thread->until_stack = INT64_MAX;
    return false;
  }
  const uint64_t mean = session->stack_bytes;
  if (mean == 0) {
    thread->is_drawn = true;
    thread->until_stack = INT64_MAX;
    return false;
  }
  if (!was_drawn) {
    // Each thread has its own sequence of numbers, which is the same in each recording of the
    // program. An allocation in thread_begin() may have drawn already.
    if (!thread->is_drawn) {
      thread->random = (uint64_t)thread->ordinal << 32;
      thread->until_stack = draw_distance(thread, mean);
      thread->is_drawn = true;
    }
    if ((thread->until_stack -= (int64_t)size) >= 0) return false;
  }
  thread->until_stack = draw_distance(thread, mean);
  return true;
}

void stack_write(uint64_t word0, uint64_t size) {
  const int saved = errno;
  if (!is_chosen(&self, size)) {
    event_write(word0, size);
    errno = saved;
    return;
  }
  const uint32_t generation = atomic_load_explicit(recording, memory_order_relaxed);
  if (!calls_are_filtered() &&
      atomic_exchange_explicit(&mapped, generation, memory_order_relaxed) != generation)
    session_write_maps();
  const Registers registers = registers_now();
  event_write_with_stack(word0, size, &registers);
  // This store after the call keeps the call from becoming a jump, because this function's frame is
  // the first of the stack.
  errno = saved;
}

void stack_end(void) {
  const uint32_t generation = atomic_load_explicit(recording, memory_order_relaxed);
  if (generation != 0 && !calls_are_filtered() &&
      atomic_load_explicit(&mapped, memory_order_relaxed) == generation)
    session_write_maps();
}
