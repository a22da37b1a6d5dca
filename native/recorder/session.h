// One process's part in a recording: whether it records, its file, and the reason if it stopped.
//
// `recording` points to a word that is zero unless this process records. The kernel zeroes the word
// in every child that gets memory of its own, however it was forked. Every event reads it, because
// a child must not write into its parent's rings.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernel.h"
#include "ring.h"

// Points to the generation of this process's rings; 0: none.
extern LOAM_HIDDEN _Atomic uint32_t* recording;

// Valid while *recording is not zero.
extern LOAM_HIDDEN const Session* session;
extern LOAM_HIDDEN Control* control;
extern LOAM_HIDDEN Slot* slots;

// New -> Beginning -> Open -> Off, or from Beginning straight to Off. A child starts with its
// parent's state. Off is final: only an attached heap, which calls no hook, begins again.
enum { kNew, kBeginning, kOpen, kOff };
extern LOAM_HIDDEN _Atomic int session_state;

// Whether this process writes no events any more, or never does. A hook then only calls the real
// function. Relaxed: a hook that sees it late writes an event, which finds no ring.
static inline bool session_is_off(void) {
  return LOAM_UNLIKELY(atomic_load_explicit(&session_state, memory_order_relaxed) == kOff);
}

// Makes this process's file, if the process is part of a recording and has none. Call where
// *recording is zero.
bool session_begin(void);
// The same for a process that runs already, in the folder that its drainer made. Call when no
// thread is writing an event. A failure sets `*why` and writes no message.
bool session_attach(const char* where, const char** why);
// Unmaps the memory of this process's last recording. pre: as session_attach()
void session_forget(void);
// Ends this process's events for good. The first caller's reason is written to standard error.
void session_off(const char* what, int error);
// The same without a message: the recording has ended while the program goes on.
void session_off_over(void);
// Call when the drainer is gone: ends the events with a message, and removes the folder.
void session_off_abandoned(void);
// Whether the drainer is gone. It asks the system only after a while without a heartbeat.
bool session_is_abandoned(void);
// What the drainer has told this process: kIsLeft or kIsFiltered.
bool session_is_told(uint32_t what);
// The address of this part of the file; null if it was not mapped at the start.
char* session_window(uint64_t offset, uint64_t bytes);
// Appends this process's mappings to the text file beside its file.
void session_write_maps(void);
// Opens this process's file; returns the negated error number on failure.
int session_open_file(void);
// Returns the number of this process's next fork.
uint32_t session_next_fork(void);
// The fork handlers call this in the child. The fork was announced in the parent's ring.
void session_forked(uint32_t number);
