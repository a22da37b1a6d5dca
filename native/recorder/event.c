#define _GNU_SOURCE
#include "event.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "touched.h"

// The most units of an event: time (2), size, pages, the event, one for events that were dropped
// before it, and three before a stack.
enum { kMostUnits = 9, kSlack = 2 * kMostUnits * kUnitBytes };

// The most room of a mark, and of its name.
enum { kMarkRoom = 512, kLongestName = 255 };

typedef struct Units {
  Unit units[4];
  uint32_t count;
  const char* name;  // the name of a mark; null for an event
  uint64_t name_bytes;
} Units;

static void add(Units* units, uint64_t word0, uint64_t low) {
  units->units[units->count].word0 = word0;
  units->units[units->count++].word1 = low & UINT32_MAX;
}

static uint64_t room(const Ring* ring) {
  const uint64_t used =
      ring->position - atomic_load_explicit(&ring->slot->tail, memory_order_acquire);
  const uint64_t bytes = ring->mask + 1;
  return used + kSlack < bytes ? bytes - used - kSlack : 0;
}

static bool is_over(void) {
  if (LOAM_LIKELY(atomic_load_explicit(&session->is_over, memory_order_relaxed) == 0)) return false;
  session_off_over();
  return true;
}

// Waits for the drainer. False when the drainer is gone and this process no longer records.
static bool wait_for_room(const Ring* ring, uint64_t need) {
  const uint32_t generation = atomic_load_explicit(recording, memory_order_relaxed);
  for (int i = 0; i < 2000; ++i) {
    if (room(ring) > need) return true;
    stamp_pause();
  }
  for (uint64_t pause = 50000;; pause = pause < 500000 ? pause * 2 : 1000000) {
    if (room(ring) > need) return true;
    // The recording was switched off, or this is a child that goes on here because a handler
    // forked.
    if (generation == 0 || atomic_load_explicit(recording, memory_order_relaxed) != generation)
      return false;
    if (is_over()) return false;
    if (session_is_told(kIsLeft)) {
      session_off("`loam record` does not see this process", 0);
      return false;
    }
    if (session_is_abandoned()) {
      session_off_abandoned();
      return false;
    }
    kernel_sleep(pause);
  }
}

// The thread's small ring is full. A large one, if there is one, holds the events that come while
// the drainer sleeps.
static bool move_to_large(Thread* thread) {
  if (thread->ring.slot->is_large || !slots_may_have_large()) return false;
  Ring large;
  int error = 0;
  if (!slots_claim(true, &large, &error)) return false;
  slots_release(&thread->ring);
  thread->ring = large;
  lease_move(thread);
  return true;
}

static void publish(Ring* ring) {
  atomic_store_explicit(&ring->slot->head, ring->position, memory_order_release);
}

static void put(Ring* ring, Unit unit, uint64_t stamp) {
  Unit* to = (Unit*)(void*)(ring->units + (ring->position & ring->mask));
  to->word0 = unit.word0;
  to->word1 = stamp << 32 | unit.word1;
  ring->position += kUnitBytes;
}

// Writes the registers and `bytes` of the stack: all bytes that are copied, or 0 where there is no
// room.
static void put_stack(Ring* ring, const Registers* registers, uint64_t bytes, uint64_t stamp) {
  const uint64_t begin = ring->position + 3 * kUnitBytes;
  if (bytes > 0) {
    const uint64_t at = begin & ring->mask;
    const uint64_t first = ring->mask + 1 - at < bytes ? ring->mask + 1 - at : bytes;
    const struct iovec to[] = {{ring->units + at, first}, {ring->units, bytes - first}};
    bytes = kernel_copy(control->pid, to, first < bytes ? 2 : 1, registers->stack);
  }
  put(ring, (Unit){event_word(kStack, 0, sizeof *registers + bytes), 0}, stamp);
  const Unit words[] = {{registers->instruction, registers->stack},
                        {registers->frame, registers->link}};
  for (int i = 0; i < 2; ++i) {
    *(Unit*)(void*)(ring->units + (ring->position & ring->mask)) = words[i];
    ring->position += kUnitBytes;
  }
  ring->position += (bytes + kUnitBytes - 1) & ~(uint64_t)(kUnitBytes - 1);
}

static void put_name(Ring* ring, const Units* units, uint64_t stamp) {
  put(ring, (Unit){event_word(kMark, 0, units->name_bytes), 0}, stamp);
  for (uint64_t at = 0; at < units->name_bytes; at += kUnitBytes) {
    Unit* to = (Unit*)(void*)(ring->units + (ring->position & ring->mask));
    const uint64_t left = units->name_bytes - at;
    memset(to, 0, sizeof *to);
    memcpy(to, units->name + at, left < kUnitBytes ? left : kUnitBytes);
    ring->position += kUnitBytes;
  }
}

// Events from here on may share the last stamp.
static void share_stamp(Ring* ring) {
  const uint64_t most = ring->position + kShareStamp * kUnitBytes;
  ring->shared = most < ring->limit ? most : ring->limit;
}

// pre: there is room for all units but the stack
static void put_all(Thread* thread, Ring* ring, const Units* units, const Registers* registers) {
  const uint64_t stamp = stamp_now();
  lease_look(thread);
  // A handler that comes here meanwhile clears `beat`, and then no event shares this stamp.
  const bool is_own = ring == &thread->ring;
  if (is_own) thread->stamp = stamp << 32;
  // Computed before the time record takes its units. find_room() promised room for a stack and all
  // other units, and a stack must not be lost because of the two units of the time record.
  const bool has_room = registers != NULL && room(ring) > kStackBytes;
  const uint64_t stack_bytes = has_room && !calls_are_filtered() ? kStackBytes : 0;
  if (ring->position >= ring->limit || (uint32_t)(stamp >> 32) != ring->high) {
    thread_write_time(thread, ring, stamp);
    const uint64_t bytes = room(ring);
    ring->limit = ring->position + (bytes < kTimeEvery ? bytes : kTimeEvery);
  }
  if (thread->dropped > 0) {
    put(ring, (Unit){event_word(kDropped, 0, thread->dropped), 0}, stamp);
    thread->dropped = 0;
  }
  if (registers != NULL) put_stack(ring, registers, stack_bytes, stamp);
  if (units->name != NULL) put_name(ring, units, stamp);
  for (uint32_t i = 0; i < units->count; ++i) put(ring, units->units[i], stamp);
  publish(ring);
  if (is_own) share_stamp(ring);
}

// `need`: the bytes of a stack or a mark. If no thread may wait, and there is room only for the
// event, the stack is left out.
static bool find_room(Thread* thread, Ring* ring, bool is_own, uint64_t need) {
  if (need == 0 && ring->position < ring->limit) return true;
  if (is_over()) return false;
  if (room(ring) > need) return true;
  if (is_own && move_to_large(thread)) return true;
  if (!session->drops_when_full) return wait_for_room(ring, need);
  if (need == kStackBytes && room(ring) > 0) return true;
  ++thread->dropped;
  atomic_fetch_add(&control->lost, 1);
  return false;
}

// For a handler that interrupts the writing of an event, and for a thread after its end.
static void write_through_borrowed(Thread* thread, const Units* units, const Registers* registers,
                                   uint64_t need) {
  Ring ring;
  if (!thread_borrow(thread, &ring)) return;
  // The interrupted event goes on with a new stamp.
  thread->beat = kNoBeat;
  if (find_room(thread, &ring, false, need)) put_all(thread, &ring, units, registers);
  if (ring.slot != NULL && atomic_load_explicit(recording, memory_order_relaxed) != 0)
    slots_release(&ring);
}

// Whether `writing` is stale: a handler left its frame with longjmp.
static bool is_stale(uintptr_t writing) {
  if ((uintptr_t)__builtin_frame_address(0) <= writing) return false;
  // A handler's own stack may lie above the frame.
  stack_t stack;
  return sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) == 0;
}

static void write_units(const Units* units, const Registers* registers) {
  const uint64_t need = registers != NULL ? kStackBytes : units->name != NULL ? kMarkRoom : 0;
  Thread* thread = &self;
  const int saved = errno;
  if (thread->writing != 0 && is_stale(thread->writing)) thread->writing = 0;
  const bool interrupts = thread->writing != 0;
  if (!interrupts && !thread_begin(thread)) {
    errno = saved;
    return;
  }
  if (interrupts || thread->has_ended || thread->ring.slot == NULL) {
    write_through_borrowed(thread, units, registers, need);
  } else {
    thread->writing = (uintptr_t)__builtin_frame_address(0);
    atomic_signal_fence(memory_order_seq_cst);
    if (find_room(thread, &thread->ring, true, need))
      put_all(thread, &thread->ring, units, registers);
    atomic_signal_fence(memory_order_seq_cst);
    thread->writing = 0;
  }
  errno = saved;
}

static void write_slow(uint64_t word0, uint64_t size, uint64_t touched,
                       const Registers* registers) {
  Units units = {.count = 0};
  if (touched != 0) add(&units, event_word(kTouched, 0, touched - 1), 0);
  if (size >> 32 != 0) add(&units, event_word(kSizeHigh, 0, size >> 32), 0);
  add(&units, word0, size);
  write_units(&units, registers);
}

// The program marks a moment with a name (include/loam/record.h).
LOAM_EXPORT void loam_record_mark(const char* name);

LOAM_EXPORT void loam_record_mark(const char* name) {
  if (name == NULL) return;
  const Units units = {.count = 0, .name = name, .name_bytes = strnlen(name, kLongestName)};
  write_units(&units, NULL);
}

// pre: `writing` is set
static bool write_with_new_stamp(Thread* thread, uint64_t word0, uint64_t size) {
  Ring* ring = &thread->ring;
  if (ring->position >= ring->limit) return false;
  const uint64_t beat = atomic_load_explicit(&session->heartbeat, memory_order_relaxed);
  if (LOAM_UNLIKELY(thread->beat != beat)) lease_beat(thread, beat);
  atomic_signal_fence(memory_order_seq_cst);
  const uint64_t stamp = stamp_now();
  thread->stamp = stamp << 32;
  // No event shares a stamp of which no time record tells the high half.
  ring->shared = 0;
  lease_look(thread);
  if (LOAM_UNLIKELY((uint32_t)(stamp >> 32) != ring->high)) return false;
  event_put(ring, word0, stamp << 32 | size);
  share_stamp(ring);
  return true;
}

void* event_write_stamped(uint64_t word0, uint64_t size, void* block) {
  Thread* thread = &self;
  bool is_written = false;
  if (LOAM_LIKELY(thread->generation == atomic_load_explicit(recording, memory_order_relaxed) &&
                  thread->writing == 0 && size >> 32 == 0)) {
    thread->writing = (uintptr_t)__builtin_frame_address(0);
    atomic_signal_fence(memory_order_seq_cst);
    is_written = write_with_new_stamp(thread, word0, size);
    atomic_signal_fence(memory_order_seq_cst);
    thread->writing = 0;
  }
  if (!is_written) event_write_slow(word0, size, 0);
  return block;
}

void event_write_slow(uint64_t word0, uint64_t size, uint64_t touched) {
  write_slow(word0, size, touched, NULL);
}

void event_write_with_stack(uint64_t word0, uint64_t size, const Registers* registers) {
  write_slow(word0, size, 0, registers);
}
