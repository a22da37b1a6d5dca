// The C family: each hook calls the real function and writes the event. A free's event is written
// before the call, an allocation's after it.
//
//   the program's call -> hook -> real function -> hooks that it calls itself
//                                                  (parts of the outer one; an outer operator new
//                                                  leaves its event to them)
#define _GNU_SOURCE
#include "hooks.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "event.h"
#include "real.h"
#include "thread.h"

static uint64_t alignment_word(size_t alignment) {
  if (alignment == 0) return 0;
  return (uint64_t)(63 - __builtin_clzll(alignment)) << kAlignmentShift;
}

void* hook_allocated(void* block, size_t size, uint32_t family, size_t alignment) {
  const int saved = errno;
  // Allocators round a size up to its alignment.
  touched_begins(block, size | alignment);
  const uint64_t word =
      event_word(kAllocate, hook_family_or(family), (uintptr_t)block) | alignment_word(alignment);
  if (LOAM_LIKELY(block != NULL))
    stack_or_event(word, size);
  else
    event_write(word, size);
  errno = saved;
  return block;
}

void hook_frees(void* block, size_t size, uint32_t family) {
  const uint64_t word = event_word(kFree, family, (uintptr_t)block);
  const uint64_t touched = LOAM_UNLIKELY(touched_may(block)) ? touched_pages(block) : 0;
  if (LOAM_UNLIKELY(touched != 0))
    event_write_slow(word, size, touched);
  else
    event_write(word, size);
}

void hook_resize_begins(void* block) {
  const uint64_t word = event_word(kResizeFrom, 0, (uintptr_t)block);
  const uint64_t touched = touched_may(block) ? touched_pages(block) : 0;
  if (touched != 0)
    event_write_slow(word, 0, touched);
  else
    event_write(word, 0);
}

void hook_resize_ends(void* block, size_t size) {
  touched_begins(block, size);
  const uint64_t word = event_word(kResizeTo, 0, (uintptr_t)block);
  if (LOAM_LIKELY(block != NULL))
    stack_or_event(word, size);
  else
    event_write(word, size);
}

bool hook_enter_inside(uintptr_t frame, uintptr_t caller, uintptr_t* outer) {
  if (real_contains(caller)) return false;
  *outer = self.inside;
  self.inside = frame;
  return true;
}

// malloc, free and calloc have a function for each rare case. Their own code then ends with a call,
// and needs to keep nothing across it.
LOAM_COLD static void* malloc_inside(size_t size, uintptr_t frame, uintptr_t caller) {
  uintptr_t outer;
  const bool is_outer = hook_enter_inside(frame, caller, &outer);
  void* block = real.malloc(size);
  if (!is_outer) return block;
  hook_leave(outer);
  return hook_allocated(block, size, kByMalloc, 0);
}

LOAM_EXPORT void* malloc(size_t size) {
  if (LOAM_UNLIKELY(!real_is_ready())) return early_allocate(0, size);
  if (session_is_off()) return real.malloc(size);
  if (LOAM_UNLIKELY(!hook_enter_outermost()))
    return malloc_inside(size, (uintptr_t)__builtin_frame_address(0),
                         (uintptr_t)__builtin_return_address(0));
  void* block = real.malloc(size);
  hook_leave(0);
  return hook_allocated_fast(block, size, kByMalloc);
}

LOAM_COLD static void free_inside(void* block, uintptr_t frame, uintptr_t caller) {
  if (early_has(block)) return;
  uintptr_t outer;
  const bool is_outer = hook_enter_inside(frame, caller, &outer);
  if (is_outer) hook_frees(block, 0, kByFree);
  real.free(block);
  if (is_outer) hook_leave(outer);
}

__attribute__((noinline)) static void free_notable(void* block) {
  if (!early_has(block)) {
    hook_frees(block, 0, kByFree);
    real.free(block);
  }
  hook_leave(0);
}

LOAM_EXPORT void free(void* block) {
  if (block == NULL) return;
  if (session_is_off()) {
    if (!early_has(block)) real.free(block);
    return;
  }
  if (LOAM_UNLIKELY(!hook_enter_outermost())) {
    free_inside(block, (uintptr_t)__builtin_frame_address(0),
                (uintptr_t)__builtin_return_address(0));
    return;
  }
  if (LOAM_UNLIKELY(touched_may(block))) {
    free_notable(block);
    return;
  }
  if (LOAM_UNLIKELY(!event_write_shared(event_word(kFree, kByFree, (uintptr_t)block), 0)))
    block = event_write_stamped(event_word(kFree, kByFree, (uintptr_t)block), 0, block);
  real.free(block);
  hook_leave(0);
}

static size_t product(size_t count, size_t size) {
  size_t bytes;
  return LOAM_UNLIKELY(__builtin_mul_overflow(count, size, &bytes)) ? SIZE_MAX : bytes;
}

LOAM_COLD static void* calloc_inside(size_t count, size_t size, uintptr_t frame, uintptr_t caller) {
  uintptr_t outer;
  const bool is_outer = hook_enter_inside(frame, caller, &outer);
  void* block = real.calloc(count, size);
  if (!is_outer) return block;
  hook_leave(outer);
  return hook_allocated(block, product(count, size), kByCalloc, 0);
}

LOAM_EXPORT void* calloc(size_t count, size_t size) {
  if (LOAM_UNLIKELY(!real_is_ready())) return early_allocate(0, product(count, size));
  if (session_is_off()) return real.calloc(count, size);
  if (LOAM_UNLIKELY(!hook_enter_outermost()))
    return calloc_inside(count, size, (uintptr_t)__builtin_frame_address(0),
                         (uintptr_t)__builtin_return_address(0));
  void* block = real.calloc(count, size);
  hook_leave(0);
  return hook_allocated_fast(block, product(count, size), kByCalloc);
}

// Moves a block out of the early area, where no block is resized.
static void* realloc_early(void* block, size_t size) {
  void* moved = malloc(size);
  const size_t old = early_size(block);
  if (moved != NULL) memcpy(moved, block, old < size ? old : size);
  return moved;
}

LOAM_EXPORT void* realloc(void* block, size_t size) {
  if (LOAM_UNLIKELY(early_has(block))) return realloc_early(block, size);
  if (LOAM_UNLIKELY(!real_is_ready())) return early_allocate(0, size);
  uintptr_t outer;
  const bool is_outer = hook_enter(&outer);
  if (LOAM_UNLIKELY(!is_outer)) return real.realloc(block, size);
  // The allocator decides the meaning of a size of 0: all allocators free the block, and some
  // return another.
  if (block != NULL && size != 0)
    hook_resize_begins(block);
  else if (block != NULL)
    hook_frees(block, 0, kByFree);
  void* moved = real.realloc(block, size);
  hook_leave(outer);
  if (block != NULL && size != 0)
    hook_resize_ends(moved, size);
  else if (block == NULL || moved != NULL)
    hook_allocated(moved, size, kByMalloc, 0);
  return moved;
}

LOAM_EXPORT void* reallocarray(void* block, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    // The real function fails too, and does not touch the block.
    bytes = SIZE_MAX;
    errno = ENOMEM;
    if (block == NULL) (void)hook_allocated(NULL, bytes, kByMalloc, 0);
    return NULL;
  }
  return realloc(block, bytes);
}

LOAM_EXPORT int posix_memalign(void** block, size_t alignment, size_t size) {
  if (LOAM_UNLIKELY(!real_is_ready()))
    return (*block = early_allocate(alignment, size)) != NULL ? 0 : ENOMEM;
  if (real.posix_memalign == NULL) return ENOMEM;
  uintptr_t outer;
  const bool is_outer = hook_enter(&outer);
  const int error = real.posix_memalign(block, alignment, size);
  if (!is_outer) return error;
  hook_leave(outer);
  hook_allocated(error == 0 ? *block : NULL, size, kByAligned, alignment);
  return error;
}

typedef void* (*Aligned)(size_t, size_t);

static inline void* allocate_aligned(Aligned function, size_t alignment, size_t size) {
  if (LOAM_UNLIKELY(!real_is_ready())) return early_allocate(alignment, size);
  if (function == NULL) {
    void* block = NULL;
    const int error =
        posix_memalign(&block, alignment < sizeof(void*) ? sizeof(void*) : alignment, size);
    if (error != 0) errno = error;
    return error == 0 ? block : NULL;
  }
  uintptr_t outer;
  const bool is_outer = hook_enter(&outer);
  void* block = function(alignment, size);
  if (!is_outer) return block;
  hook_leave(outer);
  hook_allocated(block, size, kByAligned, alignment);
  return block;
}

LOAM_EXPORT void* memalign(size_t alignment, size_t size) {
  (void)real_is_ready();
  return allocate_aligned(real.memalign, alignment, size);
}

LOAM_EXPORT void* aligned_alloc(size_t alignment, size_t size) {
  (void)real_is_ready();
  return allocate_aligned(real.aligned_alloc, alignment, size);
}

static inline void* allocate_pages(void* (*function)(size_t), size_t size, size_t rounded) {
  if (function == NULL) return memalign(kPageOfValloc, rounded);
  uintptr_t outer;
  const bool is_outer = hook_enter(&outer);
  void* block = function(size);
  if (!is_outer) return block;
  hook_leave(outer);
  hook_allocated(block, size, kByValloc, kPageOfValloc);
  return block;
}

LOAM_EXPORT void* valloc(size_t size) {
  if (!real_is_ready()) return early_allocate(kPageOfValloc, size);
  return allocate_pages(real.valloc, size, size);
}

LOAM_EXPORT void* pvalloc(size_t size) {
  if (!real_is_ready()) return early_allocate(kPageOfValloc, size);
  if (size > SIZE_MAX - kPageOfValloc) return errno = ENOMEM, NULL;
  return allocate_pages(real.pvalloc, size,
                        (size + kPageOfValloc - 1) / kPageOfValloc * kPageOfValloc);
}

LOAM_EXPORT void free_sized(void* block, size_t size) {
  if (block == NULL || early_has(block) || !real_is_ready()) return;
  uintptr_t outer;
  const bool is_outer = hook_enter(&outer);
  if (is_outer) hook_frees(block, size, kByFreeSized);
  if (real.free_sized != NULL)
    real.free_sized(block, size);
  else
    real.free(block);
  if (is_outer) hook_leave(outer);
}

LOAM_EXPORT void free_aligned_sized(void* block, size_t alignment, size_t size) {
  if (block == NULL || early_has(block) || !real_is_ready()) return;
  uintptr_t outer;
  const bool is_outer = hook_enter(&outer);
  if (is_outer) hook_frees(block, size, kByFreeSized);
  if (real.free_aligned_sized != NULL)
    real.free_aligned_sized(block, alignment, size);
  else
    real.free(block);
  if (is_outer) hook_leave(outer);
}

LOAM_EXPORT void cfree(void* block) {
  if (block == NULL || early_has(block) || !real_is_ready()) return;
  uintptr_t outer;
  const bool is_outer = hook_enter(&outer);
  if (is_outer) hook_frees(block, 0, kByFree);
  if (real.cfree != NULL)
    real.cfree(block);
  else
    real.free(block);
  if (is_outer) hook_leave(outer);
}

// The event is written before the call takes effect, as for a free.
LOAM_EXPORT int malloc_trim(size_t keep) {
  if (!real_is_ready() || real.malloc_trim == NULL) return 0;
  uintptr_t outer;
  const bool is_outer = hook_enter(&outer);
  if (is_outer) event_write(event_word(kTrims, 0, 0), keep);
  const int trimmed = real.malloc_trim(keep);
  if (is_outer) hook_leave(outer);
  return trimmed;
}
