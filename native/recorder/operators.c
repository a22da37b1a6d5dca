// An operator new may throw through its hook, so the hook leaves no mark behind. It records the
// family of the next allocation. If the real operator calls malloc (libstdc++), malloc's hook
// writes the event with that family. If it allocates by itself (Loam, tcmalloc), the family is
// still recorded afterwards, and the operator's hook writes the event.
//
// Most programs have the operators of a C++ library, whose plain forms are malloc and free. Their
// hooks call these at once, so a call goes through one hook and not through two or three.
//
// A C program may load a C++ library where RTLD_NEXT does not find it. Then the operators are
// looked up in that library. If there is none, the hooks use malloc and free.
#define _GNU_SOURCE
#include "operators.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hooks.h"
#include "real.h"

typedef void* (*New)(size_t);
typedef void* (*NewNothrow)(size_t, const void*);
typedef void* (*NewAligned)(size_t, size_t);
typedef void* (*NewAlignedNothrow)(size_t, size_t, const void*);
typedef void (*Delete)(void*);
typedef void (*DeleteNothrow)(void*, const void*);
typedef void (*DeleteSized)(void*, size_t);
typedef void (*DeleteAlignedNothrow)(void*, size_t, const void*);
typedef void (*DeleteAlignedSized)(void*, size_t, size_t);

// Whether the plain forms are those of a C++ library, and no other file has its own: a library's
// operator new[] calls whichever operator new there is.
static bool are_plain;
// Another file has its own, so that a library's form may end there, and with a call of free() that
// counts as the program's: then that call is the event.
static bool are_replaced;

// For every form: its name after _Zn or _Zd, its arguments as declared and as passed, and the
// family and number of its event.
#define EACH_NEW(X)                                                                               \
  X(wm, New, (size_t size), (size), kByNew, 0)                                                    \
  X(am, New, (size_t size), (size), kByNewArray, 0)                                               \
  X(wmRKSt9nothrow_t, NewNothrow, (size_t size, const void* no), (size, no), kByNew, 0)           \
  X(amRKSt9nothrow_t, NewNothrow, (size_t size, const void* no), (size, no), kByNewArray, 0)      \
  X(wmSt11align_val_t, NewAligned, (size_t size, size_t at), (size, at), kByAlignedNew, at)       \
  X(amSt11align_val_t, NewAligned, (size_t size, size_t at), (size, at), kByAlignedNewArray, at)  \
  X(wmSt11align_val_tRKSt9nothrow_t, NewAlignedNothrow, (size_t size, size_t at, const void* no), \
    (size, at, no), kByAlignedNew, at)                                                            \
  X(amSt11align_val_tRKSt9nothrow_t, NewAlignedNothrow, (size_t size, size_t at, const void* no), \
    (size, at, no), kByAlignedNewArray, at)

#define EACH_PLAIN_DELETE(X)                                                                    \
  X(lPv, Delete, (void* block), (block), kByDelete, 0)                                          \
  X(aPv, Delete, (void* block), (block), kByDeleteArray, 0)                                     \
  X(lPvm, DeleteSized, (void* block, size_t size), (block, size), kByDeleteSized, size)         \
  X(aPvm, DeleteSized, (void* block, size_t size), (block, size), kByDeleteArraySized, size)    \
  X(lPvRKSt9nothrow_t, DeleteNothrow, (void* block, const void* no), (block, no), kByDelete, 0) \
  X(aPvRKSt9nothrow_t, DeleteNothrow, (void* block, const void* no), (block, no), kByDeleteArray, 0)

#define EACH_ALIGNED_DELETE(X)                                                                 \
  X(lPvSt11align_val_t, DeleteSized, (void* block, size_t at), (block, at), kByDelete, 0)      \
  X(aPvSt11align_val_t, DeleteSized, (void* block, size_t at), (block, at), kByDeleteArray, 0) \
  X(lPvmSt11align_val_t, DeleteAlignedSized, (void* block, size_t size, size_t at),            \
    (block, size, at), kByDeleteSized, size)                                                   \
  X(aPvmSt11align_val_t, DeleteAlignedSized, (void* block, size_t size, size_t at),            \
    (block, size, at), kByDeleteArraySized, size)                                              \
  X(lPvSt11align_val_tRKSt9nothrow_t, DeleteAlignedNothrow,                                    \
    (void* block, size_t at, const void* no), (block, at, no), kByDelete, 0)                   \
  X(aPvSt11align_val_tRKSt9nothrow_t, DeleteAlignedNothrow,                                    \
    (void* block, size_t at, const void* no), (block, at, no), kByDeleteArray, 0)

#define EACH_DELETE(X) EACH_PLAIN_DELETE(X) EACH_ALIGNED_DELETE(X)

#define DECLARE_NEW(name, Type, declared, passed, family, alignment) static Type new_##name;
#define DECLARE_DELETE(name, Type, declared, passed, family, size) static Type delete_##name;
EACH_NEW(DECLARE_NEW)
EACH_DELETE(DECLARE_DELETE)

static void find_next(void* function, const char* name) {
  void* address = real_next(name);
  memcpy(function, &address, sizeof address);
}

LOAM_COLD static void find_late(void* function, const char* name) {
  // Allocations of this function count as the program's, even where an operator that calls another
  // operator led here.
  const uintptr_t outer = self.inside;
  self.inside = 0;
  void* address = real_next(name);
  const char* const libraries[] = {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"};
  for (size_t i = 0; address == NULL && i < sizeof libraries / sizeof *libraries; ++i) {
    void* library = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL) address = dlsym(library, name);
  }
  dlerror();
  self.inside = outer;
  memcpy(function, &address, sizeof address);
}

static bool is_of_cxx_library(const void* function) {
  Dl_info found;
  if (dladdr(function, &found) == 0 || found.dli_fname == NULL) return false;
  const char* const slash = strrchr(found.dli_fname, '/');
  const char* const name = slash != NULL ? slash + 1 : found.dli_fname;
  const char* const libraries[] = {"libstdc++.so", "libc++.so", "libc++abi.so"};
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; ++i)
    if (strstr(name, libraries[i]) == name) return true;
  return false;
}

static bool is_hook(const void* function) {
  Dl_info hook, own;
  return dladdr(function, &hook) != 0 && dladdr(&real, &own) != 0 &&
         hook.dli_fbase == own.dli_fbase;
}

// pre: the next definitions are known
static void look_at_plain_forms(void) {
  const char* const plain[] = {"_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm"};
  // RTLD_DEFAULT would begin with this library, which is linked with -Bsymbolic. The handle is not
  // closed: the program's own file stays anyway.
  void* const program = dlopen(NULL, RTLD_LAZY);
  bool are_library = program != NULL;
  bool are_hooks = true;
  for (size_t i = 0; are_library && i < sizeof plain / sizeof *plain; ++i) {
    are_library = is_of_cxx_library(real_next(plain[i]));
    are_hooks &= is_hook(dlsym(program, plain[i]));
  }
  are_plain = are_library && are_hooks;
  are_replaced = are_library && !are_hooks;
}

void operators_find(void) {
  find_next(&new_wm, "_Znwm");
  if (new_wm == NULL) return;
  void* address;
  memcpy(&address, &new_wm, sizeof address);
  real_add_file(address);
#define FIND_NEW(name, Type, declared, passed, family, alignment) \
  find_next(&new_##name, "_Zn" #name);
#define FIND_DELETE(name, Type, declared, passed, family, size) \
  find_next(&delete_##name, "_Zd" #name);
  EACH_NEW(FIND_NEW)
  EACH_DELETE(FIND_DELETE)
  look_at_plain_forms();
}

LOAM_COLD static void* new_without_library(size_t size, size_t alignment) {
  void* block = NULL;
  if (alignment == 0)
    block = malloc(size != 0 ? size : 1);
  else if (posix_memalign(&block, alignment < sizeof(void*) ? sizeof(void*) : alignment, size) != 0)
    block = NULL;
  if (block != NULL) return block;
  const char* words[] = {
      "loam record: operator new: out of memory, and no C++ library to throw bad_alloc"};
  kernel_say(words, 1);
  abort();
}

static inline __attribute__((always_inline)) bool begins_new(uint32_t family) {
  Thread* thread = &self;
  if (LOAM_UNLIKELY(thread->inside > (uintptr_t)__builtin_frame_address(0)) &&
      real_contains((uintptr_t)__builtin_return_address(0)))
    return false;
  // An outer form that is defined by this one has stored its family already.
  if (thread->family == 0) thread->family = (uint8_t)(family + 1);
  return true;
}

// The block of a plain form; null where the library's function is to be called: it throws, or calls
// a handler and tries again.
static inline __attribute__((always_inline)) void* new_plain(size_t size, uint32_t family) {
  if (LOAM_UNLIKELY(!are_plain || !hook_enter_outermost())) return NULL;
  if (LOAM_UNLIKELY(size == 0)) size = 1;
  void* block = real.malloc(size);
  hook_leave(0);
  return LOAM_LIKELY(block != NULL) ? hook_allocated_fast(block, size, family) : NULL;
}

// Whether this was a plain form; a large or an early block takes the long way.
static inline __attribute__((always_inline)) bool delete_plain(void* block, size_t size,
                                                               uint32_t family) {
  if (session_is_off() || LOAM_UNLIKELY(!are_plain || block == NULL || touched_may(block)) ||
      LOAM_UNLIKELY(!hook_enter_outermost()))
    return false;
  const uint64_t word = event_word(kFree, family, (uintptr_t)block);
  if (LOAM_UNLIKELY(!event_write_shared(word, size)))
    block = event_write_stamped(word, size, block);
  real.free(block);
  hook_leave(0);
  return true;
}

#define DEFINE_NEW(name, Type, declared, passed, kind, alignment)                                  \
  LOAM_EXPORT void* _Zn##name declared;                                                            \
  LOAM_EXPORT void* _Zn##name declared {                                                           \
    if (LOAM_UNLIKELY(new_##name == NULL)) find_late(&new_##name, "_Zn" #name);                    \
    if (session_is_off() && new_##name != NULL) return new_##name passed;                          \
    if ((kind) == kByNew || (kind) == kByNewArray) {                                               \
      void* plain = new_plain(size, kind);                                                         \
      if (LOAM_LIKELY(plain != NULL)) return plain;                                                \
    }                                                                                              \
    const bool is_outer = begins_new(kind);                                                        \
    void* block = new_##name != NULL ? new_##name passed : new_without_library(size, alignment);   \
    if (LOAM_UNLIKELY(is_outer && self.family != 0)) hook_allocated(block, size, kind, alignment); \
    return block;                                                                                  \
  }
EACH_NEW(DEFINE_NEW)

#define LONG_DELETE(name, passed, family, bytes)                                    \
  if (LOAM_UNLIKELY(delete_##name == NULL)) find_late(&delete_##name, "_Zd" #name); \
  uintptr_t outer;                                                                  \
  const bool is_outer = !are_replaced && hook_enter(&outer);                        \
  if (is_outer && block != NULL) hook_frees(block, bytes, family);                  \
  if (LOAM_LIKELY(delete_##name != NULL))                                           \
    delete_##name passed;                                                           \
  else                                                                              \
    real.free(block);                                                               \
  if (is_outer) hook_leave(outer);

#define DEFINE_PLAIN_DELETE(name, Type, declared, passed, family, bytes) \
  LOAM_EXPORT void _Zd##name declared;                                   \
  LOAM_EXPORT void _Zd##name declared {                                  \
    if (LOAM_LIKELY(delete_plain(block, bytes, family))) return;         \
    LONG_DELETE(name, passed, family, bytes)                             \
  }
EACH_PLAIN_DELETE(DEFINE_PLAIN_DELETE)

#define DEFINE_DELETE(name, Type, declared, passed, family, bytes) \
  LOAM_EXPORT void _Zd##name declared;                             \
  LOAM_EXPORT void _Zd##name declared { LONG_DELETE(name, passed, family, bytes) }
EACH_ALIGNED_DELETE(DEFINE_DELETE)
