// Recording a process that runs already. The heap loads this library and calls these functions for
// each of its calls (src/heap/recording.h has the same declarations). The hooks of malloc are not
// used then.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "event.h"
#include "hooks.h"
#include "kernel.h"
#include "real.h"
#include "session.h"
#include "stack.h"
#include "start.h"
#include "thread.h"

enum { kAttachVersion = 1 };

typedef struct Recorder {
  uint32_t version;
  // Begins to record, and returns null; else the reason for the refusal. pre: no thread is in one
  // of the other functions
  const char* (*begin)(const char* folder);
  void (*end)(void);
  // Whether the recording still goes on.
  int (*is_on)(void);
  void (*exists)(const void* block, size_t bytes);
  // Alignment 0: the call requested none.
  void (*allocated)(const void* block, size_t bytes, size_t alignment);
  void (*frees)(void* block);
  void (*resize_begins)(void* block);
  void (*resize_ends)(void* block, size_t bytes);
} Recorder;

static const char* begin(const char* folder) {
  static bool is_prepared;
  if (!is_prepared) thread_prepare();
  is_prepared = true;
  const char* why = NULL;
  return session_attach(folder, &why) ? NULL : why;
}

static void end(void) { session_forget(); }

static int is_on(void) { return atomic_load_explicit(recording, memory_order_relaxed) != 0; }

static void exists(const void* block, size_t bytes) {
  touched_begins((void*)(uintptr_t)block, bytes);
  event_write(event_word(kExists, 0, (uintptr_t)block), bytes);
}

static void allocated(const void* block, size_t bytes, size_t alignment) {
  hook_allocated((void*)(uintptr_t)block, bytes, alignment != 0 ? kByAligned : kByMalloc,
                 alignment);
}

static void frees(void* block) { hook_frees(block, 0, kByFree); }

LOAM_EXPORT const Recorder* loam_recorder(void* (*allocate)(size_t), size_t (*usable)(void*));

// The heap calls this, and passes its own functions.
LOAM_EXPORT const Recorder* loam_recorder(void* (*allocate)(size_t), size_t (*usable)(void*)) {
  static const Recorder recorder = {kAttachVersion,  begin,     end,   is_on,
                                    exists,          allocated, frees, hook_resize_begins,
                                    hook_resize_ends};
  real_use(allocate, usable);
  return &recorder;
}
