// Memory that the program maps itself: a garbage collector's, an interpreter's pools. The kernel
// merges neighbouring mappings, so from outside such memory looks like the heap's. Here the caller
// shows the difference. A mapping is the heap's if the allocator's own file requests it, or any
// call below one of its functions does. glibc's malloc calls none of these functions: it has
// internal ones.
//
// Only private anonymous memory counts as the heap's anywhere, so no other mapping is an event.
// Every unmapping is an event, because the heap may get the address next. The event of an unmapping
// is written before it takes effect, and that of a mapping after it, as for blocks.
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "event.h"
#include "real.h"
#include "thread.h"

#undef mmap64  // musl's header defines it as a macro for mmap

// Whether the function that called a hook here is the program's; false while that is unknown.
static inline __attribute__((always_inline)) bool is_programs(void) {
  return real.malloc != NULL && self.inside <= (uintptr_t)__builtin_frame_address(0) &&
         !real_contains((uintptr_t)__builtin_return_address(0));
}

static void tell(uint32_t kind, const void* address, size_t bytes) {
  const int saved = errno;
  event_write(event_word(kind, 0, (uintptr_t)address), bytes);
  errno = saved;
}

static void* map(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  // Before the next definitions are known, and where there is no next definition.
  if (real.mmap == NULL)
    return (void*)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
  return real.mmap(address, bytes, protection, flags, file, offset);
}

static inline __attribute__((always_inline)) void* map_and_tell(void* address, size_t bytes,
                                                                int protection, int flags, int file,
                                                                off_t offset) {
  void* const mapped = map(address, bytes, protection, flags, file, offset);
  const bool counts = (flags & MAP_ANONYMOUS) != 0 && (flags & MAP_TYPE) == MAP_PRIVATE;
  if (mapped != MAP_FAILED && counts && is_programs()) tell(kMapped, mapped, bytes);
  return mapped;
}

LOAM_EXPORT void* mmap(void* address, size_t bytes, int protection, int flags, int file,
                       off_t offset) {
  return map_and_tell(address, bytes, protection, flags, file, offset);
}

LOAM_EXPORT void* mmap64(void* address, size_t bytes, int protection, int flags, int file,
                         off_t offset) {
  return map_and_tell(address, bytes, protection, flags, file, offset);
}

LOAM_EXPORT int munmap(void* address, size_t bytes) {
  if (is_programs()) tell(kUnmapped, address, bytes);
  return real.munmap != NULL ? real.munmap(address, bytes)
                             : (int)syscall(SYS_munmap, address, bytes);
}

LOAM_EXPORT void* mremap(void* address, size_t bytes, size_t wanted, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  void* const place = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : NULL;
  va_end(arguments);
  const bool tells = is_programs();
  if (tells) tell(kUnmapped, address, bytes);
  void* const moved = real.mremap != NULL
                          ? real.mremap(address, bytes, wanted, flags, place)
                          : (void*)syscall(SYS_mremap, address, bytes, wanted, flags, place);
  if (tells && moved == MAP_FAILED) tell(kMapped, address, bytes);
  if (tells && moved != MAP_FAILED) tell(kMapped, moved, wanted);
  return moved;
}
