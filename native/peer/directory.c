/* libpeer-counters.so: publishes the figures of this process's allocator where `loam` looks for
 * counters (formats/counters.md, "A peer's figures"). `loam run --allocator` preloads it.
 *
 * A thread asks the allocator four times a second and stores each answer as one whole word, so no
 * reader ever stops it. The block is complete before its magic number is stored (release), so a
 * reader finds all of it or nothing.
 *
 *   header 128 | table `peer` 64 | one field of 48 bytes a figure        and the record: the values
 *
 * The library replaces no function. A process with an unknown allocator publishes nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "figures.h"

struct table {
  char name[24];
  uint32_t kind, parent;
  uint64_t address;
  uint32_t stride, count, link, lock;
  uint64_t reserved;
};

struct field {
  char name[24];
  uint32_t table, offset, width, count;
  uint64_t reserved;
};

struct block {
  _Atomic uint64_t magic;
  uint32_t version, header_size, total_size, table_size, table_count, field_size, field_count;
  uint32_t reserved;
  uint64_t self;
  char library[32];
  char more[48];
  struct table table;
  struct field fields[MOST_FIGURES];
};
_Static_assert(offsetof(struct block, table) == 128, "the format's header");
_Static_assert(sizeof(struct table) == 64 && sizeof(struct field) == 48, "the format's entries");

__attribute__((visibility("default"), aligned(64))) struct block loam_counters;

static _Atomic uint64_t values[MOST_FIGURES];
static void (*read_peer)(struct figures*);

void add_figure(struct figures* figures, const char* name, uint64_t value) {
  if (figures->count == MOST_FIGURES) return;
  figures->names[figures->count] = name;
  figures->values[figures->count++] = value;
}

/* A figure that was unknown in the first look has no field, and stays absent. */
static void store(const struct figures* figures) {
  for (uint32_t i = 0; i < loam_counters.field_count; ++i) {
    for (int j = 0; j < figures->count; ++j) {
      if (strcmp(loam_counters.fields[i].name, figures->names[j]) != 0) continue;
      /* relaxed: each word is true by itself */
      atomic_store_explicit(&values[i], figures->values[j], memory_order_relaxed);
    }
  }
}

static void publish(const struct figures* figures) {
  enum { RECORD = 1, FORMAT = 1 };
  const uint32_t none = UINT32_MAX;
  struct block* block = &loam_counters;
  block->version = FORMAT;
  block->header_size = offsetof(struct block, table);
  block->total_size = sizeof *block;
  block->table_size = sizeof block->table;
  block->table_count = 1;
  block->field_size = sizeof block->fields[0];
  block->field_count = (uint32_t)figures->count;
  block->self = (uintptr_t)block;
  block->table = (struct table){
      "peer", RECORD, none, (uintptr_t)values, 0, 1, none, none, 0,
  };
  for (int i = 0; i < figures->count; ++i) {
    struct field* field = &block->fields[i];
    strncpy(field->name, figures->names[i], sizeof field->name - 1);
    field->offset = (uint32_t)i * sizeof values[0];
    field->width = sizeof values[0];
    field->count = 1;
  }
  store(figures);
  uint64_t magic = 0;
  memcpy(&magic, "LOAMCNTR", sizeof magic);
  atomic_store_explicit(&block->magic, magic, memory_order_release);
}

/* Takes one look. gperftools' functions have no figures before its constructor has run. */
static void look(void) {
  struct figures figures = {0};
  read_peer(&figures);
  if (loam_counters.field_count != 0) {
    store(&figures);
  } else if (figures.count != 0) {
    publish(&figures);
  }
}

enum { LEAST_STACK = 256 << 10, MOST_STACK = 64 << 20 };

static void* follow(void* unused) {
  for (;; look()) {
    const struct timespec pause = {0, 250000000};
    nanosleep(&pause, NULL);
  }
  return unused;
}

/* The new thread blocks all signals, so that the program's threads get them. */
static void start_thread(void) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  /* The C library takes static thread-local memory out of the stack, and says EINVAL if it does not
   * fit. Without the thread the figures stay those of the start. */
  int refusal = EINVAL;
  for (size_t stack = LEAST_STACK; stack <= MOST_STACK && refusal == EINVAL; stack *= 2) {
    pthread_attr_setstacksize(&attributes, stack);
    refusal = pthread_create(&thread, &attributes, follow, NULL);
  }
  if (refusal == 0) pthread_setname_np(thread, "peer-counters");
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
}

__attribute__((constructor)) static void start(void) {
  char* version = loam_counters.library;
  if (find_jemalloc(version)) {
    read_peer = read_jemalloc;
  } else if (find_tcmalloc(version)) {
    read_peer = read_tcmalloc;
  } else if (find_mimalloc(version)) {
    read_peer = read_mimalloc;
  } else {
    return;
  }
  look();
  start_thread();
  /* A child of fork() has only the thread that forked. */
  pthread_atfork(NULL, NULL, start_thread);
}
