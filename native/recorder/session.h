// One process's part in a recording: whether it records, its file, and the reason if it stopped.
//
// `recording` points to a word that is zero unless this process records. The kernel zeroes the word
// in every child that gets memory of its own, however it was forked. Every event reads it, because
// a child must not write into its parent's rings.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ring.h"

// The generation of this process's rings; 0: none.
extern _Atomic uint32_t* recording;

// Valid while *recording is not zero.
extern const Session* session;
extern Control* control;
extern Slot* slots;

// Makes a file of this process's own, if it is part of a recording and has none. Called where
// *recording is zero.
bool session_begin(void);
// The same for a process that runs already, in the folder that its drainer made; once no thread is
// in an event any more. What fails is not said, but `*why` is set.
bool session_attach(const char* where, const char** why);
// Gives back what the last recording of this process has mapped. pre: as session_attach()
void session_forget(void);
// No more events of this process, for good. The first caller's reason is said on standard error.
void session_off(const char* what, int error);
// The recording has ended while the program goes on: nothing to be said.
void session_off_over(void);
// Nobody drains any more: the process goes on by itself, and the folder is taken away.
void session_off_abandoned(void);
// Whether the drainer is gone; asks the system, so only after a while without its heartbeat.
bool session_is_abandoned(void);
// Adds what this process has mapped to the text beside its file.
void session_write_maps(void);
// Opens this process's file; negative: minus the error's number.
int session_open_file(void);
// The next fork of this process gets this number.
uint32_t session_next_fork(void);
// In the child, by the fork handlers: the fork was announced in the parent's ring.
void session_forked(uint32_t number);
