// The common part of all hooks: the check whether a call is the outermost one, and its event.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "event.h"
#include "real.h"
#include "stack.h"
#include "thread.h"
#include "touched.h"

enum { kPageOfValloc = 4096 };

// The common case of hook_enter(): no other hook is at work in this thread. The frame is the
// hook's.
static inline __attribute__((always_inline)) bool hook_enter_outermost(void) {
  const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
  // If the marked frame is not above this one, longjmp left the mark behind.
  if (LOAM_UNLIKELY(self.inside > frame)) return false;
  self.inside = frame;
  return true;
}

// The other case. The hook gives its frame and its return address.
LOAM_COLD bool hook_enter_inside(uintptr_t frame, uintptr_t caller, uintptr_t* outer);

// False if no event is to be written: this process does not record, or the real function of another
// hook made this call, which is then a part of that one.
// Such calls come from the allocator's own file. A call from another file comes from a signal
// handler that interrupted the real function, and is an event of its own. `*outer` is for
// hook_leave().
static inline __attribute__((always_inline)) bool hook_enter(uintptr_t* outer) {
  *outer = 0;
  if (session_is_off()) return false;
  return LOAM_LIKELY(hook_enter_outermost()) ||
         hook_enter_inside((uintptr_t)__builtin_frame_address(0),
                           (uintptr_t)__builtin_return_address(0), outer);
}

static inline __attribute__((always_inline)) void hook_leave(uintptr_t outer) {
  self.inside = outer;
}

// The family of the operator new that made this call, which is cleared; `family` if none did.
static inline uint32_t hook_family_or(uint32_t family) {
  Thread* thread = &self;
  if (LOAM_LIKELY(thread->family == 0)) return family;
  const uint32_t operators = thread->family - 1u;
  thread->family = 0;
  return operators;
}

// Returns `block`.
void* hook_allocated(void* block, size_t size, uint32_t family, size_t alignment);
void hook_frees(void* block, size_t size, uint32_t family);
void hook_resize_begins(void* block);
// `block` is null if the call failed.
void hook_resize_ends(void* block, size_t size);

// Returns `block`. Each way ends with a call, so a hook needs to keep nothing.
static inline __attribute__((always_inline)) void* hook_allocated_fast(void* block, size_t size,
                                                                       uint32_t family) {
  if (LOAM_UNLIKELY(block == NULL || size >= kNotableFrom || self.until_stack < (int64_t)size))
    return hook_allocated(block, size, family, 0);
  self.until_stack -= (int64_t)size;
  uint64_t word = event_word(kAllocate, family, (uintptr_t)block);
  if (LOAM_UNLIKELY(self.family != 0))
    word = event_word(kAllocate, hook_family_or(family), (uintptr_t)block);
  if (LOAM_LIKELY(event_write_shared(word, size))) return block;
  return event_write_stamped(word, size, block);
}
