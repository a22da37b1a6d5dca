#pragma once

#include <stddef.h>

struct counts {
  int prepare, parent, child;
};
extern struct counts fork_handler_calls;

/// Sets the heap whose blocks the handlers use. At first it is malloc's.
void fork_handlers_use(void* (*its_malloc)(size_t), void (*its_free)(void*));

/// The first step of every handler.
void fork_handlers_allocate(void);
