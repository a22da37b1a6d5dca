#pragma once

#include <stddef.h>

struct counts {
  int prepare, parent, child;
};
extern struct counts fork_handler_calls;

/// Whose blocks the handlers take and give back: malloc's and free's at first.
void fork_handlers_use(void* (*its_malloc)(size_t), void (*its_free)(void*));

/// What every handler does first.
void fork_handlers_allocate(void);
